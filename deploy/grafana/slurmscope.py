# SPDX-License-Identifier: Apache-2.0
"""slurmscope itself: exporter, agents and portal, what they cost and what they miss."""

from __future__ import annotations

from deploy.grafana.panels import BARS, DIAL, FULL, HALF, LINES, NUMBER, STACK, TABLE, Dashboard, Panel, Row, or_zero

AGENTS = 'NODE, job="slurm-nodes"'
NOW = Row(
    "Now",
    (
        Panel(
            NUMBER,
            "Cluster exporter",
            {"": "up{CLUSTER}"},
            words=(("1", "up", "green"), ("0", "down", "red")),
            text="Whether Prometheus can scrape it.",
        ),
        Panel(
            NUMBER,
            "Agents down",
            {"": f"count(up{{{AGENTS}}}) - sum(up{{{AGENTS}}})"},
            warn_from=1,
            bad_from=10,
            text="Jobs on these nodes are not measured.",
        ),
        Panel(
            NUMBER,
            "Portal behind",
            {"": "time() - max(slurmscope_reporter_read_until_timestamp_seconds{PORTAL})"},
            unit="s",
            warn_from=1800,
            bad_from=3600,
            text="Jobs that ended since then are not archived yet.",
        ),
        Panel(
            NUMBER,
            "Archive",
            {"": "max(slurmscope_archive_size_bytes{PORTAL})"},
            unit="bytes",
            text="Size of the archive; of a database server, of the whole database it is in.",
        ),
        Panel(
            NUMBER,
            "Free for the archive",
            {"": "min(slurmscope_archive_free_bytes{PORTAL})"},
            unit="bytes",
            text="Free space on the disk of an archive in SQLite.",
        ),
        Panel(
            NUMBER,
            "Next certificate expires",
            {"": "min(slurmscope_certificate_expiry_timestamp_seconds) - time()"},
            unit="s",
            text="Of all exporters and agents with TLS.",
        ),
    ),
)

EXPORTER = Row(
    "Cluster exporter",
    (
        Panel(
            NUMBER,
            "Collectors",
            {"{{collector}}": "slurmscope_collector_success{CLUSTER}"},
            width=FULL,
            words=(("1", "good", "green"), ("0", "old or missing", "red")),
            text="Whether each collector has fresh data.",
        ),
        Panel(
            LINES,
            "Age of polled data",
            {"{{source}}": "slurmscope_reading_age_seconds{CLUSTER}"},
            unit="s",
            text="Time since each source was last read successfully.",
        ),
        Panel(
            LINES,
            "Poll duration",
            {"{{source}}": "slurmscope_reading_duration_seconds{CLUSTER}"},
            unit="s",
            text="How long Slurm's commands take.",
        ),
        Panel(
            LINES,
            "Failed polls",
            {
                "{{source}}": (
                    "sum by (source) (increase(slurmscope_reading_errors_total{CLUSTER}[$__rate_interval]))"
                    " or sum by (source) (0 * slurmscope_readings_total{CLUSTER})"
                )
            },
            bad_from=1,
            text="The log of the exporter says why.",
        ),
        Panel(
            STACK,
            "Commands per minute",
            {"{{command}}": "60 * rate(slurmscope_commands_total{CLUSTER}[$__rate_interval])"},
            text="The load that slurmscope puts on the controller.",
        ),
        Panel(
            LINES,
            "Series served and dropped",
            {
                "served": "scrape_samples_scraped{CLUSTER}",
                "dropped": or_zero(
                    "sum(increase(slurmscope_series_dropped_total{CLUSTER}[$__rate_interval]))",
                    "slurmscope_config_last_reload_successful{CLUSTER}",
                ),
            },
            text="Series above metrics.series-limit are dropped.",
        ),
        Panel(
            STACK,
            "HTTP requests per minute",
            {"{{code}}": "60 * sum by (code) (rate(slurmscope_http_requests_total{CLUSTER}[$__rate_interval]))"},
            text="By status code.",
        ),
        Panel(
            LINES,
            "CPU of the exporter",
            {"CPU": "rate(process_cpu_seconds_total{CLUSTER}[$__rate_interval])"},
            unit="percentunit",
            width=HALF,
            text="Without the Slurm commands it runs.",
        ),
        Panel(
            LINES,
            "Memory of the exporter",
            {"resident": "process_resident_memory_bytes{CLUSTER}"},
            unit="bytes",
            width=HALF,
            text="Resident memory of the exporter.",
        ),
    ),
)

NODES = Row(
    "Node agents",
    (
        Panel(
            DIAL,
            "Agents up",
            {"": f"avg(up{{{AGENTS}}})"},
            unit="percentunit",
            text="Share of the agents that Prometheus can scrape.",
        ),
        Panel(
            BARS,
            "Versions",
            {"{{version}}": f"count by (version) (slurmscope_build_info{{{AGENTS}}})"},
            width=4,
            text="Agents of each version.",
        ),
        Panel(
            TABLE,
            "Agents that are down",
            {"down": f"up{{{AGENTS}}} == 0"},
            labels=("instance",),
            width=8,
            text="The page /targets of Prometheus has the errors.",
        ),
        Panel(
            LINES,
            "Failing collectors",
            {"{{collector}}": f"sum by (collector) (1 - slurmscope_collector_success{{{AGENTS}}})"},
            bad_from=1,
            text="Agents on which a collector fails.",
        ),
        Panel(
            LINES,
            "Sources that cannot be read",
            {"{{source}}": f"sum by (source) (1 - slurmscope_source_available{{{AGENTS}}})"},
            text="Agents that lack a file of the kernel, or the right to read it.",
        ),
        Panel(
            LINES,
            "Duration of scrapes",
            {
                "median": f"quantile(0.5, scrape_duration_seconds{{{AGENTS}}})",
                "slowest": f"max(scrape_duration_seconds{{{AGENTS}}})",
            },
            unit="s",
            text="With the reading of all jobs.",
        ),
        Panel(
            LINES,
            "Samples per scrape of all agents",
            {"samples": f"sum(scrape_samples_scraped{{{AGENTS}}})"},
            text="Prometheus stores as many with each scrape interval.",
        ),
        Panel(
            LINES,
            "CPU of the agents",
            {
                "median": f"quantile(0.5, rate(process_cpu_seconds_total{{{AGENTS}}}[5m]))",
                "highest": f"max(rate(process_cpu_seconds_total{{{AGENTS}}}[5m]))",
            },
            unit="percentunit",
            text="Share of one core that an agent uses.",
        ),
        Panel(
            LINES,
            "Memory of the agents",
            {
                "median": f"quantile(0.5, process_resident_memory_bytes{{{AGENTS}}})",
                "highest": f"max(process_resident_memory_bytes{{{AGENTS}}})",
            },
            unit="bytes",
            text="Resident memory of an agent.",
        ),
    ),
)

PORTAL = Row(
    "Portal",
    (
        Panel(
            LINES,
            "Archived jobs per minute",
            {"jobs": "60 * sum(rate(slurmscope_reporter_jobs_total{PORTAL}[$__rate_interval]))"},
            text="Ended job runs that got their report.",
        ),
        Panel(
            LINES,
            "Failures per minute",
            {
                "polls of accounting": "60 * sum(rate(slurmscope_reporter_failures_total{PORTAL}[$__rate_interval]))",
                "queries to Prometheus": or_zero(
                    "60 * sum(rate(slurmscope_series_failures_total{PORTAL}[$__rate_interval]))",
                    "slurmscope_series_queries_total{PORTAL}",
                ),
            },
            bad_from=1,
            text="The portal catches up by itself.",
        ),
        Panel(
            STACK,
            "Requests per minute, by status",
            {"{{status}}": "60 * sum by (status) (rate(slurmscope_portal_requests_total{PORTAL}[$__rate_interval]))"},
            text="2xx to 5xx; none if no response was started.",
        ),
        Panel(
            LINES,
            "Response time, by page",
            {
                "{{route}}": (
                    "histogram_quantile(0.95, sum by (le, route) "
                    "(rate(slurmscope_portal_request_duration_seconds_bucket{PORTAL}[$__rate_interval])))"
                )
            },
            unit="s",
            text="95th percentile of the time until the response starts.",
        ),
        Panel(
            LINES,
            "CPU of the portal",
            {"CPU": "rate(process_cpu_seconds_total{PORTAL}[$__rate_interval])"},
            unit="percentunit",
            text="Share of one core.",
        ),
        Panel(
            LINES,
            "Memory of the portal",
            {"resident": "process_resident_memory_bytes{PORTAL}"},
            unit="bytes",
            text="Resident memory of the portal.",
        ),
    ),
)

DASHBOARD = Dashboard(
    name="slurmscope",
    title="slurmscope",
    text="Exporter, agents and portal: what they cost and what they miss.",
    rows=(NOW, EXPORTER, NODES, PORTAL),
)
