# SPDX-License-Identifier: Apache-2.0
"""Options of a submit line are read up to the script; what comes after belongs to that."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurmscope.jobs.submit_line import size_request, submit_options


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", {}),
        ("sbatch", {}),
        ("sbatch job.sh", {}),
        ("sbatch -n16 -c 4 job.sh", {"ntasks": "16", "cpus-per-task": "4"}),
        ("sbatch --ntasks=16 --cpus-per-task 4 job.sh", {"ntasks": "16", "cpus-per-task": "4"}),
        ("sbatch --mem 8G job.sh --mem=4G -n 3", {"mem": "8G"}),
        ("sbatch --exclusive job.sh -c 4", {"exclusive": ""}),
        ("sbatch -H -n 2 job.sh", {"hold": "", "ntasks": "2"}),
        ("sbatch --mem-per-cpu=2G --wrap=python x.py -n 5", {"mem-per-cpu": "2G", "wrap": "python"}),
        ("sbatch --mem= job.sh", {"mem": ""}),
        ("sbatch -n", {"ntasks": ""}),
        ("sbatch - -n 2", {}),
    ],
)
def test_options_before_the_script_are_read(line: str, expected: dict[str, str]) -> None:
    assert expected == submit_options(line)


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("srun -N2 -n8 ./solve -c4", "--nodes=2"),
        ("/opt/slurm/bin/srun --exact -c 4 --mem 2G ./solve --key=secret", "--cpus-per-task=4 --mem=2G"),
        ("srun --mem-per-cpu=1G ./solve", "--mem-per-cpu=1G"),
        # The line of the job is also that of the step of its script.
        ("sbatch --mem=2G job.sh", ""),
        ("srun", ""),
        ("", ""),
    ],
)
def test_size_that_a_step_requests_itself_is_read_without_its_program(line: str, expected: str) -> None:
    assert expected == size_request(line)


@given(st.text(alphabet=st.sampled_from("-=nc 4xé\t\x00")) | st.text())
def test_any_line_is_read(line: str) -> None:
    assert all(value == "" or value in line for value in submit_options(line).values())


FLAGS = """
-E -H -I -K -O -Q -X -Z -k -l -s -u -v --bell --compress --consolidate-segments --contiguous --disable-status --exact
--exclusive --external-launcher --get-user-env --hold --ignore-pbs --immediate --interactive --kill-command
--kill-on-bad-exit --label --multi-prog --nice --no-allocate --no-bell --no-kill --no-requeue --no-shell --oom-kill-step
--overcommit --overlap --oversubscribe --parsable --preserve-env --propagate --pty --quiet --quit-on-interrupt --reboot
--requeue --resv-ports --send-libs --spread-job --spread-segments --stepmgr --test-only --unbuffered --use-min-nodes
--verbose --whole --x11
"""
VALUED = """
-A -B -C -D -F -G -J -L -M -N -S -T -a -b -c -d -e -i -m -n -o -p -q -r -t -w -x
--accel-bind --account --acctg-freq --array --batch --bb --bbf --bcast --bcast-exclude --begin --chdir
--cluster-constraint --clusters --comment --constraint --container --container-id --context --core-spec
--cores-per-socket --cpu-bind --cpu-freq --cpus-per-gpu --cpus-per-task --deadline --delay-boot --dependency
--distribution --epilog --error --exclude --export --export-file --extra --extra-node-info --gid --gpu-bind --gpu-freq
--gpus --gpus-per-node --gpus-per-socket --gpus-per-task --gres --gres-flags --het-group --hint --input --job-name
--jobid --kill-on-invalid-dep --licenses --mail-type --mail-user --mcs-label --mem-bind --mem-per-cpu --mem-per-gpu
--mincpus --mpi --network --nodefile --nodelist --nodes --ntasks --ntasks-per-core --ntasks-per-gpu --ntasks-per-node
--ntasks-per-socket --open-mode --output --partition --power --prefer --priority --profile --prolog --qos --relative
--reservation --segment --signal --slurmd-debug --sockets-per-node --switches --task-epilog --task-prolog --thread-spec
--threads --threads-per-core --time --time-min --tmp --treewidth --tres-bind --tres-per-task --uid --wait-all-nodes
--wckey --wrap
"""
"""Options of sbatch, srun and salloc, as their help lists them: 22.05, and what was added up to 26.05."""


@pytest.mark.parametrize("command", ["sbatch", "srun", "/usr/bin/salloc"])
def test_every_option_of_slurm_leaves_the_next_one_alone(command: str) -> None:
    for flag in FLAGS.split():
        options = submit_options(f"{command} {flag} --mem=4G x.sh --mem=9G")
        assert (2, "4G") == (len(options), options["mem"]), flag
        assert "mem" not in submit_options(f"{command} {flag} x.sh --mem=9G"), flag
    for valued in VALUED.split():
        options = submit_options(f"{command} {valued} 7 --mem=4G x.sh --mem=9G")
        assert (2, {"7", "4G"}) == (len(options), {*options.values()}), valued


def test_wait_has_a_value_for_srun_only() -> None:
    assert {"wait": "5", "mem": "4G"} == submit_options("srun -W 5 --mem=4G x")
    assert {"wait": "", "mem": "4G"} == submit_options("sbatch -W --mem=4G x")


def test_option_of_a_plugin_does_not_take_another_option() -> None:
    assert {"site-flag": "", "mem": "4G"} == submit_options("sbatch --site-flag --mem=4G x")
    assert {"site-value": "9", "mem": "4G"} == submit_options("sbatch --site-value 9 --mem=4G x")


def test_short_flags_may_stand_together() -> None:
    assert {"verbose": "", "ntasks": "2", "ntasks-per-node": "3"} == submit_options(
        "sbatch -vvv -n 2 --tasks-per-node=3 -- x"
    )
