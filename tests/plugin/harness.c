// SPDX-License-Identifier: GPL-2.0-or-later
/*
 * Call the functions of the profiling plugin as slurmstepd does, without Slurm.
 *
 *   harness PLUGIN.so SOCKET SCENARIO
 *
 * The few functions of Slurm that the plugin calls are defined below. The
 * program ends with 0 if the plugin returned what Slurm expects.
 */
#include "config.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include "slurm/slurm_version.h"
#include "src/common/slurm_xlator.h"
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 2, 0)
#include "src/interfaces/acct_gather_profile.h"
#else
#include "src/common/slurm_acct_gather_profile.h"
#endif
#include "src/common/parse_config.h"
#include "src/common/read_config.h"

typedef union {
	uint64_t u;
	double d;
} value_t;

#define CHECK(condition)                                                      \
	do {                                                                  \
		if (!(condition)) {                                           \
			fprintf(stderr, "line %d: %s\n", __LINE__,            \
				#condition);                                  \
			exit(1);                                              \
		}                                                             \
	} while (0)

/* ---- What Slurm provides ---- */

#undef slurm_conf
slurm_conf_t slurm_conf;

static const char *configured[8][2]; /* acct_gather.conf: keys and values */
static s_p_options_t known_options[8];
static int known_count;
static config_key_pair_t *shown[8];
static int shown_count;
static int is_stepd = 1;

bool slurm_running_in_slurmstepd(void)
{
	return is_stepd;
}

/* The same from Slurm 25.05 on; its type differs between releases. */
bool is_in_stepd(uint32_t daemons) __asm__("slurm_run_in_daemon");

bool is_in_stepd(uint32_t daemons)
{
	(void) daemons;
	return is_stepd;
}

int slurm_error(const char *format, ...)
{
	va_list arguments;

	va_start(arguments, format);
	vfprintf(stdout, format, arguments);
	va_end(arguments);
	fprintf(stdout, "\n");
	return -1;
}

void *slurm_xcalloc(size_t count, size_t size, bool clear, bool try,
		    const char *file, int line, const char *function)
{
	(void) clear, (void) try, (void) file, (void) line, (void) function;
	return calloc(count, size);
}

void slurm_xfree(void **item)
{
	free(*item);
	*item = NULL;
}

char *slurm_xstrdup(const char *text)
{
	return text ? strdup(text) : NULL;
}

int slurm_s_p_get_string(char **value, const char *key,
			 const s_p_hashtbl_t *table)
{
	CHECK(table);
	for (int i = 0; configured[i][0]; i++)
		if (!strcasecmp(configured[i][0], key)) {
			*value = strdup(configured[i][1]);
			return 1;
		}
	return 0;
}

void slurm_transfer_s_p_options(s_p_options_t **full, s_p_options_t *options,
				int *count)
{
	(void) full;
	for (; options->key; options++)
		known_options[known_count++] = *options;
	*count = known_count;
}

/* Its type differs between releases. */
void *append_to_list(void *list, void *item) __asm__("slurm_list_append");

void *append_to_list(void *list, void *item)
{
	(void) list;
	return shown[shown_count++] = item;
}

/* Slurm 22.05 has no such function: without it the plugin must work too. */
static int gpu_positions[2] = { -1, -1 };
static int gpu_lookups;

void gpu_get_tres_pos(int *memory, int *utilization)
{
	gpu_lookups++;
	*memory = gpu_positions[0];
	*utilization = gpu_positions[1];
}

/* ---- The plugin ---- */

static int (*init_plugin)(void);
static int (*fini_plugin)(void);
static int (*child_forked)(void);
static void (*conf_options)(s_p_options_t **, int *);
static void (*conf_set)(s_p_hashtbl_t *);
static void (*conf_values)(void **);
static void (*get)(enum acct_gather_profile_info, void *);
static int (*step_start)(stepd_step_rec_t *);
static int (*step_end)(void);
static int (*task_start)(uint32_t);
static int (*task_end)(pid_t);
static int64_t (*create_group)(const char *);
static int (*create_dataset)(const char *, int64_t,
			     acct_gather_profile_dataset_t *);
static int (*add_sample)(int, void *, time_t);
static bool (*is_active)(uint32_t);

static void *find(void *plugin, const char *name)
{
	char full[128];
	void *symbol = dlsym(plugin, name);

	if (!symbol) {
		snprintf(full, sizeof(full), "acct_gather_profile_p_%s", name);
		symbol = dlsym(plugin, full);
	}
	CHECK(symbol);
	return symbol;
}

static void *load(const char *path)
{
	void *plugin = dlopen(path, RTLD_LAZY);

	if (!plugin) {
		fprintf(stderr, "%s\n", dlerror());
		exit(2);
	}
	CHECK(!strcmp(find(plugin, "plugin_type"),
		      "acct_gather_profile/prometheus"));
	CHECK(*(uint32_t *) find(plugin, "plugin_version") ==
	      SLURM_VERSION_NUMBER);
	*(void **) &init_plugin = find(plugin, "init");
	*(void **) &fini_plugin = find(plugin, "fini");
	*(void **) &child_forked = find(plugin, "child_forked");
	*(void **) &conf_options = find(plugin, "conf_options");
	*(void **) &conf_set = find(plugin, "conf_set");
	*(void **) &conf_values = find(plugin, "conf_values");
	*(void **) &get = find(plugin, "get");
	*(void **) &step_start = find(plugin, "node_step_start");
	*(void **) &step_end = find(plugin, "node_step_end");
	*(void **) &task_start = find(plugin, "task_start");
	*(void **) &task_end = find(plugin, "task_end");
	*(void **) &create_group = find(plugin, "create_group");
	*(void **) &create_dataset = find(plugin, "create_dataset");
	*(void **) &add_sample = find(plugin, "add_sample_data");
	*(void **) &is_active = find(plugin, "is_active");
	CHECK(!init_plugin());
	return plugin;
}

static void configure(const char *socket, const char *profile)
{
	int count = known_count = 0;

	configured[0][0] = "ProfilePrometheusSocket";
	configured[0][1] = socket;
	configured[1][0] = profile ? "ProfilePrometheusDefault" : NULL;
	configured[1][1] = profile;
	conf_options(NULL, &count);
	CHECK(count == 3);
	/* Slurm may read its configuration more than once. */
	conf_set((s_p_hashtbl_t *) 1);
	conf_set((s_p_hashtbl_t *) 1);
}

static uint32_t profile_of(enum acct_gather_profile_info which)
{
	uint32_t profile = 0;

	get(which, &profile);
	return profile;
}

static stepd_step_rec_t make_step(uint32_t step_id, uint32_t profile)
{
	stepd_step_rec_t step;

	memset(&step, 0, sizeof(step));
	step.step_id.job_id = 4711;
	step.step_id.step_id = step_id;
	step.step_id.step_het_comp = NO_VAL;
	step.node_name = "n1";
	step.uid = 1001;
	step.node_tasks = 2;
	step.profile = profile;
	return step;
}

/* Return the descriptor that the next socket will get. */
static int next_descriptor(void)
{
	int descriptor = dup(0);

	CHECK(descriptor >= 0 && !close(descriptor));
	return descriptor;
}

static bool is_open(int descriptor)
{
	return fcntl(descriptor, F_GETFD) >= 0;
}

static acct_gather_profile_dataset_t task_fields[] = {
	{ "CPUFrequency", PROFILE_FIELD_UINT64 },
	{ "CPUTime", PROFILE_FIELD_DOUBLE },
	{ "GPUUtilization", PROFILE_FIELD_DOUBLE },
	{ "RSS", PROFILE_FIELD_UINT64 },
	{ NULL, PROFILE_FIELD_NOT_SET },
};
static acct_gather_profile_dataset_t network_fields[] = {
	{ "PacketsIn", PROFILE_FIELD_UINT64 },
	{ "InMB", PROFILE_FIELD_DOUBLE },
	{ NULL, PROFILE_FIELD_NOT_SET },
};

/* ---- Scenarios ---- */

/* Two tasks and the network, as in a real step; the last sample is absurd. */
static void run_step(const char *socket)
{
	stepd_step_rec_t step = make_step(0, ACCT_GATHER_PROFILE_NOT_SET);
	value_t task[] = { { .u = 2445 }, { .d = 1.25 }, { .d = 0 },
			   { .u = 2048 } };
	value_t network[] = { { .u = 10 }, { .d = 0.5 } };
	value_t absurd[] = { { .u = UINT64_MAX }, { .d = INFINITY } };
	int64_t group;
	int first, second, net;

	slurm_conf.job_acct_gather_type = "jobacct_gather/linux";
	slurm_conf.acct_gather_interconnect_type =
		"acct_gather_interconnect/sysfs";
	configure(socket, "energy,task,network");
	CHECK(!step_start(&step));
	CHECK(is_active(ACCT_GATHER_PROFILE_TASK));
	CHECK(is_active(ACCT_GATHER_PROFILE_NOT_SET));
	CHECK(!is_active(ACCT_GATHER_PROFILE_LUSTRE));
	CHECK(profile_of(ACCT_GATHER_PROFILE_RUNNING) ==
	      (ACCT_GATHER_PROFILE_ENERGY | ACCT_GATHER_PROFILE_TASK |
	       ACCT_GATHER_PROFILE_NETWORK));
	group = create_group("Tasks");
	/* Slurm numbers datasets by order of creation, not by task. */
	first = create_dataset("1", group, task_fields);
	second = create_dataset("0", group, task_fields);
	net = create_dataset("Network", NO_PARENT, network_fields);
	CHECK(first == 0 && second == 1 && net == 2);
	CHECK(!task_start(0) && !task_start(1));
	for (int i = 0; i < 3; i++)
		CHECK(!add_sample(first, task, 1700000000 + i));
	CHECK(!add_sample(net, network, 1700000002));
	CHECK(!add_sample(net, absurd, 1700000003));
	CHECK(!task_end(123) && !task_end(124));
	CHECK(!step_end());
}

static void run_steps_with_names(const char *socket)
{
	const uint32_t ids[] = { SLURM_BATCH_SCRIPT, SLURM_EXTERN_CONT,
				 SLURM_INTERACTIVE_STEP, SLURM_PENDING_STEP,
				 NO_VAL, 7 };

	configure(socket, "all");
	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		stepd_step_rec_t step = make_step(ids[i], 0);

		step.step_id.step_het_comp = (ids[i] == 7) ? 2 : NO_VAL;
		CHECK(!step_start(&step));
	}
}

/* Two tasks on a node that accounts GPUs, as slurmstepd has them; one ends. */
static void run_gpus(const char *socket)
{
	stepd_step_task_info_t info[] = { { .gtid = 6, .pid = 123 },
					  { .gtid = 7, .pid = 124 } };
	stepd_step_task_info_t *tasks[] = { &info[0], &info[1], NULL };
	stepd_step_rec_t step = make_step(0, ACCT_GATHER_PROFILE_TASK);
	value_t values[4] = { { .u = 1 }, { .d = 1 }, { .d = 50 }, { .u = 1 } };
	int id;

	step.task = tasks;
	step.node_tasks = 3;
	configure(socket, NULL);
	CHECK(!step_start(&step));
	id = create_dataset("7", create_group("Tasks"), task_fields);
	CHECK(!add_sample(id, values, 1700000000));
	/* Slurm keeps what the first look-up finds: it must be Slurm's. */
	CHECK(!gpu_lookups);
	for (int i = 1; i < 4; i++) {
		gpu_positions[0] = (i == 1) ? -1 : 12;
		gpu_positions[1] = (i == 2) ? -1 : 13;
		CHECK(!add_sample(id, values, 1700000000 + i));
	}
	CHECK(!task_end(124) && !task_end(999) && !task_end(-1));
	CHECK(!step_end() && !task_end(123));
}

/* What a user chose with --profile wins over the default, also "none". */
static void run_choices(const char *socket)
{
	stepd_step_rec_t none = make_step(0, ACCT_GATHER_PROFILE_NONE);
	stepd_step_rec_t task = make_step(0, ACCT_GATHER_PROFILE_TASK);
	stepd_step_rec_t unset = make_step(0, ACCT_GATHER_PROFILE_NOT_SET);
	value_t values[4] = { 0 };
	int next = next_descriptor();

	configure(socket, "all");
	CHECK(!step_start(&none) && !is_active(ACCT_GATHER_PROFILE_TASK));
	CHECK(profile_of(ACCT_GATHER_PROFILE_RUNNING) ==
	      ACCT_GATHER_PROFILE_NONE);
	CHECK(create_dataset("0", 1, task_fields) == SLURM_ERROR);
	CHECK(!add_sample(0, values, 1) && !task_end(1) && !step_end());
	CHECK(!is_open(next));
	configure(socket, NULL);
	CHECK(!step_start(&unset) && !is_active(ACCT_GATHER_PROFILE_TASK));
	CHECK(!step_start(&task) && is_active(ACCT_GATHER_PROFILE_TASK));
	CHECK(!is_active(ACCT_GATHER_PROFILE_ENERGY));
}

/* Strings and pointers that no Slurm should pass. */
static void run_hostile(const char *socket)
{
	char every_byte[256], endless[10000], names[40][32];
	acct_gather_profile_dataset_t fields[41] = { 0 };
	acct_gather_profile_dataset_t odd[3] = { 0 };
	stepd_step_rec_t step = make_step(1, ACCT_GATHER_PROFILE_ALL);
	value_t values[64];
	int id;

	for (int i = 0; i < 255; i++)
		every_byte[i] = (char) (i + 1);
	every_byte[255] = '\0';
	memset(endless, 'x', sizeof(endless) - 1);
	endless[sizeof(endless) - 1] = '\0';
	memset(values, 0xff, sizeof(values));

	CHECK(!step_start(NULL) && !step_end() && !task_end(-1));
	configure(socket, "all");
	step.node_name = NULL;
	CHECK(!step_start(&step));
	step.node_name = endless;
	CHECK(!step_start(&step));
	step.node_name = every_byte;
	CHECK(!step_start(&step));

	CHECK(!add_sample(-1, values, 0) && !add_sample(0, values, 0));
	CHECK(create_group(NULL) == 0 && create_group(every_byte) == 0);
	odd[0].name = every_byte;
	odd[0].type = PROFILE_FIELD_DOUBLE;
	odd[1].name = NULL;
	odd[1].type = PROFILE_FIELD_UINT64;
	id = create_dataset(every_byte, NO_PARENT, odd);
	CHECK(id == 0 && !add_sample(id, values, -1) &&
	      !add_sample(id, NULL, 0));
	id = create_dataset(NULL, 1, NULL);
	CHECK(id == 1 && !add_sample(id, values, 0));
	for (int i = 0; i < 40; i++) { /* more fields than there is room for */
		snprintf(names[i], sizeof(names[i]), "field%d", i);
		fields[i].name = names[i];
		fields[i].type = PROFILE_FIELD_DOUBLE;
	}
	id = create_dataset("many", NO_PARENT, fields);
	CHECK(id >= 0 && !add_sample(id, values, 0));
	fields[24].type = PROFILE_FIELD_NOT_SET;
	id = create_dataset(endless, NO_PARENT, fields);
	CHECK(id == 2 && !add_sample(id, values, 0));
	for (int i = 0; i < 20; i++) { /* more layouts than there is room for */
		odd[0].name = names[i];
		CHECK(create_dataset("layout", NO_PARENT, odd) >= 0);
	}
	for (int i = 0; i < 5000; i++) { /* more tasks than there is room for */
		id = create_dataset("9", 1, odd + 2);
		CHECK(id >= 0 && !add_sample(id, values, i));
	}
	CHECK(!step_end());
}

/* The socket is never read: a call that blocked would never return. */
static void run_flood(const char *socket)
{
	stepd_step_rec_t step = make_step(1, ACCT_GATHER_PROFILE_TASK);
	value_t values[4] = { { .u = 1 }, { .d = 1 }, { .d = 1 }, { .u = 1 } };
	size_t before;
	int id;

	configure(socket, NULL);
	CHECK(!step_start(&step));
	id = create_dataset("0", create_group("Tasks"), task_fields);
	before = mallinfo2().uordblks;
	for (int i = 0; i < 20000; i++)
		CHECK(!add_sample(id, values, i));
	CHECK(mallinfo2().uordblks == before);
	CHECK(!step_end());
}

/* Mark the tasks whose samples wait in a socket. */
static void take_tasks(int agent, bool *is_seen)
{
	char text[8192], *task;
	ssize_t length;

	while ((length = recv(agent, text, sizeof(text) - 1, 0)) > 0) {
		text[length] = '\0';
		task = strstr(text, "\ttask=");
		if (task && strstr(text, "event=sample"))
			is_seen[atoi(task + 6)] = true;
	}
}

/* More tasks than the kernel queues datagrams; the agent reads once a round. */
static void run_rounds(const char *socket_path)
{
	stepd_step_rec_t step = make_step(1, ACCT_GATHER_PROFILE_TASK);
	value_t values[4] = { { .u = 1 }, { .d = 1 }, { .d = 1 }, { .u = 1 } };
	struct sockaddr_un address = { .sun_family = AF_UNIX };
	bool is_seen[40] = { false };
	int ids[40], agent;
	char name[16];

	snprintf(address.sun_path, sizeof(address.sun_path), "%s.own",
		 socket_path);
	agent = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
	CHECK(!bind(agent, (struct sockaddr *) &address, sizeof(address)));
	configure(address.sun_path, NULL);
	CHECK(!step_start(&step));
	for (int i = 0; i < 40; i++) {
		snprintf(name, sizeof(name), "%d", i);
		ids[i] = create_dataset(name, create_group("Tasks"),
					task_fields);
		take_tasks(agent, is_seen);
	}
	for (int round = 0; round < 12; round++) {
		for (int i = 0; i < 40; i++)
			CHECK(!add_sample(ids[i], values, round));
		take_tasks(agent, is_seen);
	}
	for (int i = 0; i < 40; i++)
		CHECK(is_seen[i]);
	/* What is still unsent goes with the end of a task. */
	for (int i = 0; i < 10; i++) {
		CHECK(!task_end(i));
		take_tasks(agent, is_seen);
	}
	memset(is_seen, 0, sizeof(is_seen));
	CHECK(!task_end(10));
	take_tasks(agent, is_seen);
	for (int i = 0; i < 40; i++)
		CHECK(!is_seen[i]);
	close(agent);
}

static void *sample_in_thread(void *id)
{
	value_t values[4] = { 0 };

	for (int i = 0; i < 2000; i++)
		add_sample(*(int *) id, values, i);
	return NULL;
}

/* Slurm ends a step without its lock while a last sample may be taken. */
static void run_overlap(const char *socket)
{
	stepd_step_rec_t step = make_step(1, ACCT_GATHER_PROFILE_TASK);
	pthread_t thread;
	int id;

	configure(socket, NULL);
	CHECK(!step_start(&step));
	id = create_dataset("0", create_group("Tasks"), task_fields);
	CHECK(!pthread_create(&thread, NULL, sample_in_thread, &id));
	for (int i = 0; i < 2000; i++)
		CHECK(!step_end());
	pthread_join(thread, NULL);
}

/* A task of the user inherits no descriptor; the step goes on sending. */
static void run_fork(const char *socket)
{
	stepd_step_rec_t step = make_step(1, ACCT_GATHER_PROFILE_TASK);
	int next = next_descriptor(), status = 1;
	pid_t pid;

	configure(socket, NULL);
	CHECK(!step_start(&step) && is_open(next));
	pid = fork();
	if (!pid) {
		CHECK(!child_forked());
		CHECK(!step_end());
		_exit(is_open(next));
	}
	CHECK(waitpid(pid, &status, 0) == pid && !status);
	CHECK(!step_end());
}

/* Wrong values are reported once and replaced by the defaults. */
static void run_configuration(const char *socket)
{
	char long_path[200], *shown_socket = NULL;
	void *list = (void *) 1;

	(void) socket;
	memset(long_path, 'x', sizeof(long_path) - 1);
	long_path[sizeof(long_path) - 1] = '\0';
	long_path[0] = '/';
	is_stepd = 0;
	conf_set(NULL);
	configured[0][0] = "ProfilePrometheusSocket";
	configured[1][0] = "ProfilePrometheusDefault";
	configured[2][0] = "ProfilePrometheusHost";
	configured[0][1] = long_path;
	configured[1][1] = "task,everything";
	configured[2][1] = "http://gateway:9091";
	conf_set((s_p_hashtbl_t *) 1);
	CHECK(profile_of(ACCT_GATHER_PROFILE_DEFAULT) ==
	      ACCT_GATHER_PROFILE_NONE);
	configured[0][1] = "relative.sock";
	configured[1][1] = " Task,,FILESYSTEM, ";
	conf_set((s_p_hashtbl_t *) 1);
	CHECK(profile_of(ACCT_GATHER_PROFILE_DEFAULT) ==
	      (ACCT_GATHER_PROFILE_TASK | ACCT_GATHER_PROFILE_LUSTRE));
	is_stepd = 1; /* the log of a step does not repeat it */
	conf_set((s_p_hashtbl_t *) 1);
	get(ACCT_GATHER_PROFILE_DIR, &shown_socket);
	CHECK(!strcmp(shown_socket, "/run/slurmscope-node/profile.sock"));
	free(shown_socket);
	get(ACCT_GATHER_PROFILE_DIR, NULL);
	get((enum acct_gather_profile_info) 99, &shown_socket);
	conf_values(NULL);
	conf_values(&list);
	for (int i = 0; i < shown_count; i++) {
		printf("%s=%s\n", shown[i]->name, shown[i]->value);
		free(shown[i]->name);
		free(shown[i]->value);
		free(shown[i]);
	}
}

static const struct {
	const char *name;
	void (*run)(const char *socket);
} scenarios[] = {
	{ "step", run_step },
	{ "names", run_steps_with_names },
	{ "gpus", run_gpus },
	{ "choices", run_choices },
	{ "hostile", run_hostile },
	{ "flood", run_flood },
	{ "rounds", run_rounds },
	{ "overlap", run_overlap },
	{ "fork", run_fork },
	{ "configuration", run_configuration },
};

int main(int count, char **arguments)
{
	void *plugin;

	CHECK(count == 4);
	plugin = load(arguments[1]);
	for (size_t i = 0; i < sizeof(scenarios) / sizeof(scenarios[0]); i++)
		if (!strcmp(scenarios[i].name, arguments[3])) {
			scenarios[i].run(arguments[2]);
			fini_plugin();
			dlclose(plugin);
			return 0;
		}
	fprintf(stderr, "no scenario %s\n", arguments[3]);
	return 2;
}
