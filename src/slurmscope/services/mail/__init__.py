# SPDX-License-Identifier: Apache-2.0
"""Send job mails and digests, and act as the MailProg of Slurm."""
