# SPDX-License-Identifier: Apache-2.0
"""Find the reports that people request, with what is shown beside them."""
