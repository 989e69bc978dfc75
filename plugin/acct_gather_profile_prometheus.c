// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * acct_gather_profile/prometheus: send Slurm's own samples of steps and tasks
 * to the slurmscope agent of the node.
 *
 * The plugin runs inside slurmstepd, as root, while Slurm holds a lock. So it
 * does as little as possible: it writes each event into a buffer on the stack
 * and sends it as one datagram that never blocks. It allocates nothing while a
 * step runs, starts no thread, takes no lock and has no path to abort or exit.
 * If the agent is absent, stopped or too slow, the datagram is lost and counted.
 * The last sample of a task is then sent again beside a later one: a step may
 * have more tasks than the kernel queues datagrams (net.unix.max_dgram_qlen).
 *
 * One datagram is one event: words separated by tabs, the first one naming the
 * format, the others key=value in any order.
 *
 *   slurm-profile/1  event=sample  job=12  step=0  node=n1  uid=1000
 *     start=1700000000  seq=7  lost=0  series=Tasks  task=1  time=1700000012
 *     from=jobacct_gather/cgroup  gpu=0
 *     CPUTime:d=1.98:11.79  RSS:u=20480:163840
 *
 * event   step_start, dataset, sample, task_end or step_end
 * step    a number, batch, extern, interactive, or unknown; +N for a component
 *         of a heterogeneous step
 * start   Unix time at which this run of the step began: a requeued job has
 *         the same job and step
 * seq     number of the event in this step, from 1; lost: how many of the
 *         previous ones could not be sent
 * series  Tasks, Energy, Filesystem or Network
 * task    only with Tasks, and in event=task_end if Slurm knows the task
 * from    Slurm plugin that took the sample
 * gpu     1 if Slurm measured GPUMemMB and GPUUtilization of the sample;
 *         otherwise they are uninitialised memory (Slurm 23.02 and later)
 * NAME:d  a field of the sample, double; NAME:u the same, unsigned: its value,
 *         and the sum of all its values in this step. Some of Slurm's fields
 *         are differences to the previous sample; thanks to the sum, a lost
 *         datagram loses no usage. Empty in event=dataset.
 *
 * Every byte of a key or value outside [A-Za-z0-9._/+,@-] is written as %XX.
 */
#include "config.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "slurm/slurm_version.h"
#include "src/common/slurm_xlator.h"
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0)
#include "src/interfaces/acct_gather_profile.h"
#else
#include "src/common/slurm_acct_gather_profile.h"
#endif
#include "src/common/log.h"
#include "src/common/parse_config.h"
#include "src/common/read_config.h"
#include "src/common/run_in_daemon.h"
#include "src/common/xstring.h"

#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(24, 11, 0)
typedef list_t *conf_list_t;
#else
typedef List conf_list_t;
#endif
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(25, 11, 0)
typedef void fini_t;
#define FINI_RETURN
#else
typedef int fini_t;
#define FINI_RETURN return SLURM_SUCCESS
#endif

#define DEFAULT_SOCKET "/run/slurmscope-node/profile.sock"

/* Above these limits events are dropped and counted, never cut. */
#define MAX_EVENT_BYTES 4096
#define MAX_DATASETS 2048 /* tasks of one step on one node, and a few more */
#define MAX_LAYOUTS 8
#define MAX_FIELDS 24
#define MAX_NAME_BYTES 32
#define MAX_NODE_NAME_BYTES 256

/* No difference between two samples is larger; what is, comes from a counter
 * of the kernel that was reset and would spoil the sum for good. */
#define MAX_DOUBLE 1e12
#define MAX_UNSIGNED (UINT64_C(1) << 62)

/* Room for the datagrams of a few hundred tasks, which are sampled at once. */
#define SEND_BUFFER_BYTES (1 << 20)

/* How many samples are sent again at most when a task ends. */
#define MAX_SENT_AGAIN 64

#define TASKS_GROUP 1

const char plugin_name[] = "AcctGatherProfile prometheus plugin of slurmscope";
const char plugin_type[] = "acct_gather_profile/prometheus";
const uint32_t plugin_version = SLURM_VERSION_NUMBER;

typedef union {
	uint64_t u;
	double d;
} value_t;

/* Names and types of the fields; all tasks of a step share one layout. */
typedef struct {
	int count;
	bool is_double[MAX_FIELDS];
	char names[MAX_FIELDS][MAX_NAME_BYTES];
} layout_t;

typedef struct {
	char name[MAX_NAME_BYTES];
	bool is_task;
	bool is_unsent;
	bool is_sampled;
	bool has_gpus;
	time_t time;
	const layout_t *layout;
	value_t values[MAX_FIELDS]; /* the last sample */
	value_t sums[MAX_FIELDS];
} dataset_t;

typedef struct {
	char text[MAX_EVENT_BYTES];
	size_t length;
	bool is_full;
} event_t;

static struct sockaddr_un agent = { .sun_family = AF_UNIX,
				    .sun_path = DEFAULT_SOCKET };
static uint32_t default_profile = ACCT_GATHER_PROFILE_NONE;

static struct {
	uint32_t profile;
	uint32_t job_id;
	uint32_t step_id;
	uint32_t component;
	uint32_t uid;
	uint32_t tasks;
	time_t start;
	const stepd_step_rec_t *record; /* Slurm's own, until the step ends */
	char node[MAX_NODE_NAME_BYTES];
} step = { .profile = ACCT_GATHER_PROFILE_NOT_SET };

/* Slurm calls everything that touches these under its own lock, except the
 * end of a step, which may overlap a last sample: it uses only the counters,
 * which are atomic, and the socket, which stays open until fini. */
static layout_t layouts[MAX_LAYOUTS];
static int layout_count;
static dataset_t datasets[MAX_DATASETS];
static int dataset_count;
static int unsent_count;
static int next_unsent; /* where to look for the next one to send again */
static uint64_t event_count;
static uint64_t lost_count;
static int agent_socket = -1;

static const struct {
	const char *word;
	uint32_t bits;
} profile_words[] = {
	{ "all", ACCT_GATHER_PROFILE_ALL },
	{ "none", ACCT_GATHER_PROFILE_NONE },
	{ "energy", ACCT_GATHER_PROFILE_ENERGY },
	{ "task", ACCT_GATHER_PROFILE_TASK },
	{ "filesystem", ACCT_GATHER_PROFILE_LUSTRE },
	{ "lustre", ACCT_GATHER_PROFILE_LUSTRE },
	{ "network", ACCT_GATHER_PROFILE_NETWORK },
};

#define WORD_COUNT (sizeof(profile_words) / sizeof(profile_words[0]))

/* Copy a string that may be missing or too long. */
static void copy_text(char *to, size_t size, const char *from)
{
	snprintf(to, size, "%s", from ? from : "");
}

/* ---- Writing an event ---- */

static void append(event_t *event, const char *format, ...)
	__attribute__((format(printf, 2, 3)));

static void append(event_t *event, const char *format, ...)
{
	size_t room = sizeof(event->text) - event->length;
	va_list arguments;
	int length;

	va_start(arguments, format);
	length = vsnprintf(event->text + event->length, room, format,
			   arguments);
	va_end(arguments);
	if ((length < 0) || ((size_t) length >= room))
		event->is_full = true;
	else
		event->length += (size_t) length;
}

static bool is_plain(char byte)
{
	return ((byte >= 'a') && (byte <= 'z')) ||
	       ((byte >= 'A') && (byte <= 'Z')) ||
	       ((byte >= '0') && (byte <= '9')) ||
	       (byte && strchr("._/+,@-", byte));
}

static void append_escaped(event_t *event, const char *text)
{
	for (; text && *text && !event->is_full; text++) {
		if (is_plain(*text))
			append(event, "%c", *text);
		else
			append(event, "%%%02X", (unsigned char) *text);
	}
}

static void append_text(event_t *event, const char *key, const char *text)
{
	append(event, "\t%s=", key);
	append_escaped(event, text);
}

static void append_number(event_t *event, const char *key, uint64_t number)
{
	append(event, "\t%s=%" PRIu64, key, number);
}

static void append_value(event_t *event, value_t value, bool is_double)
{
	size_t start = event->length;

	if (!is_double) {
		append(event, "%" PRIu64, value.u);
		return;
	}
	append(event, "%.17g", value.d);
	/* A library may have set a locale with a decimal comma. */
	for (size_t i = start; i < event->length; i++)
		if (event->text[i] == ',')
			event->text[i] = '.';
}

static void append_step(event_t *event)
{
	append(event, "\tstep=");
	switch (step.step_id) {
	case SLURM_BATCH_SCRIPT:
		append(event, "batch");
		break;
	case SLURM_EXTERN_CONT:
		append(event, "extern");
		break;
	case SLURM_INTERACTIVE_STEP:
		append(event, "interactive");
		break;
	case SLURM_PENDING_STEP:
	case NO_VAL:
		append(event, "unknown");
		break;
	default:
		append(event, "%" PRIu32, step.step_id);
	}
	if (step.component != NO_VAL)
		append(event, "+%" PRIu32, step.component);
}

static void begin_event(event_t *event, const char *kind)
{
	event->length = 0;
	event->is_full = false;
	append(event, "slurm-profile/1\tevent=%s", kind);
	append_number(event, "job", step.job_id);
	append_step(event);
	append_text(event, "node", step.node);
	append_number(event, "uid", step.uid);
	append_number(event, "start", (uint64_t) step.start);
	append_number(event, "seq",
		      __atomic_add_fetch(&event_count, 1, __ATOMIC_RELAXED));
	append_number(event, "lost",
		      __atomic_load_n(&lost_count, __ATOMIC_RELAXED));
}

/* Send to the path each time, not over a connection: a new agent may have
 * replaced the one that was there when the step started. */
static bool send_event(const event_t *event)
{
	int saved_errno = errno;
	bool is_sent;

	is_sent = !event->is_full && (agent_socket >= 0) &&
		  (sendto(agent_socket, event->text, event->length,
			  MSG_DONTWAIT | MSG_NOSIGNAL,
			  (struct sockaddr *) &agent, sizeof(agent)) >= 0);
	if (!is_sent)
		__atomic_add_fetch(&lost_count, 1, __ATOMIC_RELAXED);
	errno = saved_errno;
	return is_sent;
}

static void close_socket(void)
{
	if (agent_socket >= 0)
		close(agent_socket);
	agent_socket = -1;
}

static void open_socket(void)
{
	int size = SEND_BUFFER_BYTES;

	close_socket();
	agent_socket = socket(AF_UNIX,
			      SOCK_DGRAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (agent_socket >= 0)
		(void) setsockopt(agent_socket, SOL_SOCKET, SO_SNDBUFFORCE,
				  &size, sizeof(size));
}

/* ---- Datasets ---- */

static bool is_layout(const layout_t *layout,
		      const acct_gather_profile_dataset_t *fields, int count)
{
	if (layout->count != count)
		return false;
	for (int i = 0; i < count; i++) {
		char name[MAX_NAME_BYTES];

		copy_text(name, sizeof(name), fields[i].name);
		if (strcmp(layout->names[i], name) ||
		    (layout->is_double[i] !=
		     (fields[i].type == PROFILE_FIELD_DOUBLE)))
			return false;
	}
	return true;
}

/* Return the layout of these fields, a new one if needed, NULL if too many. */
static const layout_t *find_layout(const acct_gather_profile_dataset_t *fields)
{
	layout_t *layout;
	int count = 0;

	while (fields && (fields[count].type != PROFILE_FIELD_NOT_SET))
		if (++count > MAX_FIELDS)
			return NULL;
	for (int i = 0; i < layout_count; i++)
		if (is_layout(&layouts[i], fields, count))
			return &layouts[i];
	if (layout_count == MAX_LAYOUTS)
		return NULL;
	layout = &layouts[layout_count++];
	layout->count = count;
	for (int i = 0; i < count; i++) {
		copy_text(layout->names[i], MAX_NAME_BYTES, fields[i].name);
		layout->is_double[i] = (fields[i].type == PROFILE_FIELD_DOUBLE);
	}
	return layout;
}

/* Return the Slurm plugin that takes the samples of a series. */
static const char *sampler_of(const dataset_t *dataset)
{
	if (dataset->is_task)
		return slurm_conf.job_acct_gather_type;
	if (!strcmp(dataset->name, "Energy"))
		return slurm_conf.acct_gather_energy_type;
	if (!strcmp(dataset->name, "Filesystem"))
		return slurm_conf.acct_gather_filesystem_type;
	if (!strcmp(dataset->name, "Network"))
		return slurm_conf.acct_gather_interconnect_type;
	return "";
}

static void append_dataset(event_t *event, const dataset_t *dataset)
{
	append_text(event, "series", dataset->is_task ? "Tasks" : dataset->name);
	if (dataset->is_task)
		append_text(event, "task", dataset->name);
	append_text(event, "from", sampler_of(dataset));
}

static void append_field_name(event_t *event, const layout_t *layout, int i)
{
	append(event, "\t");
	append_escaped(event, layout->names[i]);
	append(event, ":%c=", layout->is_double[i] ? 'd' : 'u');
}

static void add_to_sum(value_t *sum, value_t value, bool is_double)
{
	if (!is_double) {
		if (value.u < MAX_UNSIGNED)
			sum->u += value.u;
	} else if (isfinite(value.d) && (value.d > 0) && (value.d < MAX_DOUBLE))
		sum->d += value.d;
}

/* Where Slurm keeps the GPU memory and utilization of a task, -1 if it does not
 * account them. slurmstepd knows these positions; it is not told the setting
 * AccountingStorageTRES that they come from. Weak, since Slurm 22.05 has neither
 * this function nor the fields. */
extern void gpu_get_tres_pos(int *gpumem_pos, int *gpuutil_pos)
	__attribute__((weak));

/* Return whether the next sample of a dataset has measured GPU fields. Slurm
 * does not set those of the first sample of a task. It looks up the positions
 * before that sample and keeps them: they must not be looked up earlier. */
static bool has_gpus(const dataset_t *dataset)
{
	int memory = -1, utilization = -1;

	if (!dataset->is_task || !dataset->is_sampled || !gpu_get_tres_pos)
		return false;
	gpu_get_tres_pos(&memory, &utilization);
	return (memory != -1) && (utilization != -1);
}

/* Send the last sample of a dataset; return whether the agent gets it. */
static bool send_sample(dataset_t *dataset)
{
	const layout_t *layout = dataset->layout;
	event_t event;
	bool is_sent;

	begin_event(&event, "sample");
	append_dataset(&event, dataset);
	append_number(&event, "time", (uint64_t) dataset->time);
	append_number(&event, "gpu", dataset->has_gpus);
	for (int i = 0; i < layout->count; i++) {
		append_field_name(&event, layout, i);
		append_value(&event, dataset->values[i], layout->is_double[i]);
		append(&event, ":");
		append_value(&event, dataset->sums[i], layout->is_double[i]);
	}
	is_sent = send_event(&event);
	unsent_count += !is_sent - dataset->is_unsent;
	dataset->is_unsent = !is_sent;
	return is_sent;
}

/* Send one of the samples that could not be sent; take turns. */
static bool send_unsent(void)
{
	for (int i = 0; unsent_count && (i < dataset_count); i++) {
		dataset_t *dataset = &datasets[next_unsent];

		next_unsent = (next_unsent + 1) % dataset_count;
		if (dataset->is_unsent)
			return send_sample(dataset);
	}
	return false;
}

/* ---- Configuration ---- */

/* Return the bits of "energy,task" and the like, NOT_SET if a word is wrong. */
static uint32_t parse_profile(const char *text)
{
	uint32_t bits = ACCT_GATHER_PROFILE_NOT_SET;

	while (*text) {
		size_t length = strcspn(text, ", ");
		size_t i = 0;

		while ((i < WORD_COUNT) &&
		       (strncasecmp(profile_words[i].word, text, length) ||
			profile_words[i].word[length]))
			i++;
		if (length && (i == WORD_COUNT))
			return ACCT_GATHER_PROFILE_NOT_SET;
		if (length)
			bits |= profile_words[i].bits;
		text += length + (text[length] != '\0');
	}
	/* "none" beside another word means nothing. */
	if ((bits & ACCT_GATHER_PROFILE_NONE) &&
	    (bits != ACCT_GATHER_PROFILE_ALL))
		return ACCT_GATHER_PROFILE_NONE;
	return bits;
}

static void write_profile(char *to, size_t size, uint32_t profile)
{
	size_t length = 0;

	*to = '\0';
	for (size_t i = 0; i < WORD_COUNT; i++) {
		uint32_t bits = profile_words[i].bits;

		if ((profile & bits) != bits ||
		    !strcmp(profile_words[i].word, "filesystem") ||
		    ((bits != profile) && (bits == ACCT_GATHER_PROFILE_NONE)))
			continue;
		length += (size_t) snprintf(to + length, size - length, "%s%s",
					    length ? "," : "",
					    profile_words[i].word);
		if ((bits == profile) || (length >= size))
			return;
	}
}

/* Log where an administrator reads it, not in the log of every step. */
static void warn(const char *key, const char *problem)
{
	if (!running_in_slurmstepd())
		error("%s: %s in acct_gather.conf %s", plugin_type, key,
		      problem);
}

static void set_socket(const char *path)
{
	if ((path[0] != '/') || (strlen(path) >= sizeof(agent.sun_path)))
		warn("ProfilePrometheusSocket",
			  "is not an absolute path of at most 107 bytes; using "
			  DEFAULT_SOCKET);
	else
		copy_text(agent.sun_path, sizeof(agent.sun_path), path);
}

static void set_default(const char *words)
{
	uint32_t profile = parse_profile(words);

	if (profile == ACCT_GATHER_PROFILE_NOT_SET)
		warn("ProfilePrometheusDefault",
			  "is not all, none, or a list of energy, task, "
			  "filesystem, lustre and network; using none");
	else
		default_profile = profile;
}

static void add_pair(conf_list_t list, const char *key, const char *value)
{
	config_key_pair_t *pair = xmalloc(sizeof(*pair));

	pair->name = xstrdup(key);
	pair->value = xstrdup(value);
	list_append(list, pair);
}

/* ---- What Slurm calls ---- */

extern int init(void)
{
	return SLURM_SUCCESS;
}

extern fini_t fini(void)
{
	close_socket();
	FINI_RETURN;
}

extern void acct_gather_profile_p_conf_options(s_p_options_t **full_options,
					       int *full_options_cnt)
{
	s_p_options_t options[] = {
		{ .key = "ProfilePrometheusSocket", .type = S_P_STRING },
		{ .key = "ProfilePrometheusDefault", .type = S_P_STRING },
		{ .key = "ProfilePrometheusHost", .type = S_P_STRING },
		{ .key = NULL },
	};

	transfer_s_p_options(full_options, options, full_options_cnt);
}

extern void acct_gather_profile_p_conf_set(s_p_hashtbl_t *tbl)
{
	char *value = NULL;

	copy_text(agent.sun_path, sizeof(agent.sun_path), DEFAULT_SOCKET);
	default_profile = ACCT_GATHER_PROFILE_NONE;
	if (!tbl)
		return;
	if (s_p_get_string(&value, "ProfilePrometheusSocket", tbl) && value)
		set_socket(value);
	xfree(value);
	if (s_p_get_string(&value, "ProfilePrometheusDefault", tbl) && value)
		set_default(value);
	xfree(value);
	if (s_p_get_string(&value, "ProfilePrometheusHost", tbl) && value)
		warn("ProfilePrometheusHost",
			  "is ignored: the slurmscope agent of the node pushes "
			  "to the Pushgateway, see its setting profile.push");
	xfree(value);
}

extern void acct_gather_profile_p_conf_values(conf_list_t *data)
{
	char words[64];

	if (!data || !*data)
		return;
	write_profile(words, sizeof(words), default_profile);
	add_pair(*data, "ProfilePrometheusSocket", agent.sun_path);
	add_pair(*data, "ProfilePrometheusDefault", words);
}

extern void acct_gather_profile_p_get(enum acct_gather_profile_info info_type,
				      void *data)
{
	if (!data)
		return;
	switch (info_type) {
	case ACCT_GATHER_PROFILE_DIR:
		*(char **) data = xstrdup(agent.sun_path);
		break;
	case ACCT_GATHER_PROFILE_DEFAULT:
		*(uint32_t *) data = default_profile;
		break;
	case ACCT_GATHER_PROFILE_RUNNING:
		*(uint32_t *) data = step.profile;
		break;
	default:
		break;
	}
}

extern bool acct_gather_profile_p_is_active(uint32_t type)
{
	if (step.profile <= ACCT_GATHER_PROFILE_NONE)
		return false;
	return (type == ACCT_GATHER_PROFILE_NOT_SET) || (step.profile & type);
}

extern int acct_gather_profile_p_node_step_start(stepd_step_rec_t *job)
{
	event_t event;
	char words[64];

	step.profile = ACCT_GATHER_PROFILE_NONE;
	if (!job)
		return SLURM_SUCCESS;
	step.profile = (job->profile != ACCT_GATHER_PROFILE_NOT_SET) ?
			       job->profile :
			       default_profile;
	if (step.profile <= ACCT_GATHER_PROFILE_NONE)
		return SLURM_SUCCESS;
	step.job_id = job->step_id.job_id;
	step.step_id = job->step_id.step_id;
	step.component = job->step_id.step_het_comp;
	step.uid = job->uid;
	step.tasks = job->node_tasks;
	step.start = time(NULL);
	step.record = job;
	copy_text(step.node, sizeof(step.node), job->node_name);
	open_socket();
	begin_event(&event, "step_start");
	write_profile(words, sizeof(words), step.profile);
	append_text(&event, "profile", words);
	append_number(&event, "tasks", step.tasks);
	send_event(&event);
	return SLURM_SUCCESS;
}

/* In the process that becomes a task of the user. */
extern int acct_gather_profile_p_child_forked(void)
{
	close_socket();
	return SLURM_SUCCESS;
}

extern int acct_gather_profile_p_node_step_end(void)
{
	event_t event;

	if (step.profile <= ACCT_GATHER_PROFILE_NONE)
		return SLURM_SUCCESS;
	step.record = NULL;
	begin_event(&event, "step_end");
	send_event(&event);
	return SLURM_SUCCESS;
}

/* Slurm calls this with the user's effective uid: nothing is done here. */
extern int acct_gather_profile_p_task_start(uint32_t taskid)
{
	(void) taskid;
	return SLURM_SUCCESS;
}

/* Return the task that a process started as, NULL if Slurm does not know. */
static const stepd_step_task_info_t *find_task(pid_t pid)
{
	const stepd_step_rec_t *job = step.record;

	if (!job || !job->task || (pid <= 0))
		return NULL;
	for (uint32_t i = 0; i < job->node_tasks; i++)
		if (job->task[i] && (job->task[i]->pid == pid))
			return job->task[i];
	return NULL;
}

extern int acct_gather_profile_p_task_end(pid_t taskpid)
{
	const stepd_step_task_info_t *task;
	event_t event;

	if (step.profile <= ACCT_GATHER_PROFILE_NONE)
		return SLURM_SUCCESS;
	begin_event(&event, "task_end");
	append_number(&event, "pid", (uint64_t) taskpid);
	if ((task = find_task(taskpid)))
		append_number(&event, "task", task->gtid);
	if (send_event(&event))
		for (int i = 0; (i < MAX_SENT_AGAIN) && send_unsent(); i++)
			;
	return SLURM_SUCCESS;
}

extern int64_t acct_gather_profile_p_create_group(const char *name)
{
	return (name && !strcmp(name, "Tasks")) ? TASKS_GROUP : 0;
}

extern int acct_gather_profile_p_create_dataset(
	const char *name, int64_t parent,
	acct_gather_profile_dataset_t *dataset)
{
	const layout_t *layout;
	dataset_t *added;
	event_t event;

	if (step.profile <= ACCT_GATHER_PROFILE_NONE)
		return SLURM_ERROR;
	if ((dataset_count == MAX_DATASETS) || !(layout = find_layout(dataset)))
		/* Slurm would log an error at each sample if this failed. */
		return MAX_DATASETS;
	added = &datasets[dataset_count];
	memset(added, 0, sizeof(*added));
	copy_text(added->name, sizeof(added->name), name);
	added->is_task = (parent == TASKS_GROUP);
	added->layout = layout;
	begin_event(&event, "dataset");
	append_dataset(&event, added);
	for (int i = 0; i < layout->count; i++)
		append_field_name(&event, layout, i);
	send_event(&event);
	return dataset_count++;
}

extern int acct_gather_profile_p_add_sample_data(int dataset_id, void *data,
						 time_t sample_time)
{
	dataset_t *dataset;

	if ((dataset_id < 0) || (dataset_id >= dataset_count) || !data) {
		__atomic_add_fetch(&lost_count, 1, __ATOMIC_RELAXED);
		return SLURM_SUCCESS;
	}
	dataset = &datasets[dataset_id];
	dataset->time = sample_time;
	dataset->has_gpus = has_gpus(dataset);
	dataset->is_sampled = true;
	memcpy(dataset->values, data,
	       (size_t) dataset->layout->count * sizeof(value_t));
	for (int i = 0; i < dataset->layout->count; i++)
		add_to_sum(&dataset->sums[i], dataset->values[i],
			   dataset->layout->is_double[i]);
	if (send_sample(dataset))
		send_unsent();
	return SLURM_SUCCESS;
}
