/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Stand in for NVIDIA's management library: answer as the file named by FAKE_NVML says, read anew at each call. Without
 * that variable it is the file "scenario" in the library's folder.
 *
 *   count 4                                    GPUs are 0, 1, 2, 3
 *   mig 1 2                                    GPU 1 is cut into two instances, named 200 and 201
 *   set nvmlDeviceGetPowerUsage@0 71500        what a call gives for a device; without it: code 3, not supported
 *   set nvmlDeviceGetUUID GPU-{device}         for all devices; {device} is the number of each
 *   code nvmlDeviceGetPowerUsage@0 15          the return code of a call; without @0 for all devices
 *   hang nvmlDeviceGetUtilizationRates         never returns
 *   delay nvmlDeviceGetPowerUsage 500          returns after as many milliseconds
 *   crash nvmlDeviceGetName@1                  dies
 *   process 0 4711 1048576                     a process with a context for computing
 *   gpm 0 1 58.4                               what hardware counter 1 (of nvml.h) gives between any two samples
 *   samples 0 40 60 80                         new samples of the utilization gauge at each call
 *   stamp 0 7000000                            their time stamp, for all of them; without it that of now
 *   share 0 4711 30                            the utilization of a process
 *   field 0 74 3000000000                      the value of a field; "field 0 3222 1807" is field 222 of link 3
 *   xid 0 31                                   an error, once per line; "xid 0 31 7" hits MIG instance 7 only
 *
 * Like the real library it dies on a handle that is NULL. Every call is noted in the file named by FAKE_NVML_LOG.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };
enum { ALL = -1, LINE = 512, NUMBERS = 4 };
#define NOT_AVAILABLE 0xffffffffffffffffULL

typedef unsigned int uint;
typedef unsigned long long ull;
typedef struct { char old_bus_id[16]; uint domain, bus, device, id, subsystem; char bus_id[32]; } pci_t;
typedef struct { uint gpu, memory; } utilization_t;
typedef struct { ull total, free, used; } memory_t;
typedef struct { uint version; ull total, reserved, free, used; } memory_v2_t;
typedef struct { uint version, sensor; int temperature; } temperature_t;
typedef struct { uint pid; ull memory; uint gpu_instance, compute_instance; } process_t;
typedef struct { uint version, is_supported; } support_t;
typedef struct { int device; } gpm_sample_t;
typedef struct { uint id; int code; double value; const char *names[3]; } gpm_metric_t;
typedef struct { uint version, count; gpm_sample_t *first, *second; gpm_metric_t metrics[]; } gpm_get_t;
typedef union { double real; ull whole; } value_t;
typedef struct { ull micros; value_t value; } sample_t;
typedef struct { uint pid; ull micros; uint sm, memory, encoder, decoder; } share_t;
typedef struct { uint version; unsigned char cluster[16]; int status; uint clique, state, health; } fabric_t;
typedef struct { uint id, scope; long long micros, latency; uint type; int code; value_t value; } field_t;

static FILE *scenario(void)
{
	const char *path = getenv("FAKE_NVML");
	char beside[4096];
	Dl_info library;
	if (!path && dladdr((void *)scenario, &library) && strrchr(library.dli_fname, '/')) {
		snprintf(beside, sizeof beside, "%.*s/scenario", (int)(strrchr(library.dli_fname, '/') - library.dli_fname),
			 library.dli_fname);
		path = beside;
	}
	return path ? fopen(path, "re") : NULL;
}

/* Find the line "verb name@device rest" or "verb name rest"; the former wins. Returns whether there is one. */
static int find(const char *verb, const char *name, int device, char *rest)
{
	char line[LINE], exact[LINE], general[LINE];
	int found = 0;
	FILE *file = scenario();
	if (!file)
		return 0;
	snprintf(exact, sizeof exact, "%s %s@%d", verb, name, device);
	snprintf(general, sizeof general, "%s %s", verb, name);
	while (fgets(line, sizeof line, file)) {
		line[strcspn(line, "\n")] = 0;
		for (int kind = 0; kind < 2; kind++) {
			const char *head = kind ? exact : general;
			size_t length = strlen(head);
			if (strncmp(line, head, length) || (line[length] && line[length] != ' ') || found > kind + 1)
				continue;
			found = kind + 1;
			snprintf(rest, LINE, "%s", line[length] ? line + length + 1 : "");
		}
	}
	fclose(file);
	return found;
}

static void note(const char *name, int device)
{
	const char *path = getenv("FAKE_NVML_LOG");
	char line[LINE];
	int file = path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644) : -1;
	if (file < 0)
		return;
	int length = snprintf(line, sizeof line, "%s@%d\n", name, device);
	if (write(file, line, length) != length)
		abort();
	close(file);
}

/* Do what the scenario wants of this call, and return the code it wants. */
static int behave(const char *name, int device)
{
	char rest[LINE];
	note(name, device);
	if (find("hang", name, device, rest))
		for (;;)
			pause();
	if (find("delay", name, device, rest))
		usleep(1000 * (uint)atoi(rest));
	if (find("crash", name, device, rest))
		*(volatile int *)0 = 1;
	return find("code", name, device, rest) ? atoi(rest) : SUCCESS;
}

static int device_of(const void *handle)
{
	if (!handle)
		*(volatile int *)0 = 1;
	return (int)(intptr_t)handle - 1;
}

static void *handle_of(int device)
{
	return (void *)(intptr_t)(device + 1);
}

static int numbers(const char *name, const void *handle, ull *values)
{
	char rest[LINE];
	int device = device_of(handle), code = behave(name, device);
	if (code)
		return code;
	if (!find("set", name, device, rest))
		return NOT_SUPPORTED;
	memset(values, 0, NUMBERS * sizeof *values);
	sscanf(rest, "%llu %llu %llu %llu", &values[0], &values[1], &values[2], &values[3]);
	return SUCCESS;
}

static int number(const char *name, const void *handle, uint *value)
{
	ull values[NUMBERS];
	int code = numbers(name, handle, values);
	if (!code)
		*value = (uint)values[0];
	return code;
}

static int text(const char *name, const void *handle, char *buffer, uint length)
{
	char rest[LINE];
	int device = device_of(handle), code = behave(name, device);
	if (code)
		return code;
	if (!find("set", name, device, rest))
		return NOT_SUPPORTED;
	char *place = strstr(rest, "{device}");
	if (place)
		snprintf(buffer, length, "%.*s%d%s", (int)(place - rest), rest, device, place + strlen("{device}"));
	else
		snprintf(buffer, length, "%s", rest);
	return SUCCESS;
}

static uint setting(const char *verb, int device)
{
	char rest[LINE], name[32];
	snprintf(name, sizeof name, "%d", device);
	if (find(verb, name, ALL, rest))
		return (uint)atoi(rest);
	return 0;
}

static uint count(void)
{
	char line[LINE];
	uint found = 0;
	FILE *file = scenario();
	while (file && fgets(line, sizeof line, file))
		sscanf(line, "count %u", &found);
	if (file)
		fclose(file);
	return found;
}

static int processes(const char *name, const void *handle, const char *kind, uint *size, process_t *list)
{
	char line[LINE], word[32];
	int wanted = device_of(handle), code = behave(name, wanted), device;
	uint pid, found = 0, room = *size;
	ull memory;
	FILE *file = code ? NULL : scenario();
	if (code)
		return code;
	while (file && fgets(line, sizeof line, file)) {
		memory = NOT_AVAILABLE;
		if (sscanf(line, "%31s %d %u %llu", word, &device, &pid, &memory) < 3 || strcmp(word, kind) || device != wanted)
			continue;
		if (list && found < room)
			list[found] = (process_t){ pid, memory, 0xffffffff, 0xffffffff };
		found++;
	}
	if (file)
		fclose(file);
	*size = found;
	return found > room || (!list && found) ? INSUFFICIENT_SIZE : SUCCESS;
}

int nvmlInitWithFlags(uint flags) { (void)flags; return behave("nvmlInitWithFlags", ALL); }
int nvmlShutdown(void) { return behave("nvmlShutdown", ALL); }
const char *nvmlErrorString(int code) { (void)code; return "as the scenario says"; }

int nvmlDeviceGetCount_v2(uint *found)
{
	int code = behave("nvmlDeviceGetCount", ALL);
	*found = count();
	return code;
}

int nvmlDeviceGetHandleByIndex_v2(uint index, void **handle)
{
	int code = behave("nvmlDeviceGetHandleByIndex", (int)index);
	*handle = code || index >= count() ? NULL : handle_of((int)index);
	return code ? code : *handle ? SUCCESS : INVALID_ARGUMENT;
}

int nvmlDeviceGetUUID(void *h, char *buffer, uint length) { return text("nvmlDeviceGetUUID", h, buffer, length); }
int nvmlDeviceGetName(void *h, char *buffer, uint length) { return text("nvmlDeviceGetName", h, buffer, length); }
int nvmlDeviceGetMinorNumber(void *h, uint *value) { return number("nvmlDeviceGetMinorNumber", h, value); }
int nvmlDeviceGetPowerUsage(void *h, uint *value) { return number("nvmlDeviceGetPowerUsage", h, value); }
int nvmlDeviceGetGpuInstanceId(void *h, uint *value) { return number("nvmlDeviceGetGpuInstanceId", h, value); }
int nvmlDeviceGetComputeInstanceId(void *h, uint *value) { return number("nvmlDeviceGetComputeInstanceId", h, value); }

int nvmlDeviceGetPciInfo_v3(void *h, pci_t *pci)
{
	memset(pci, 0, sizeof *pci);
	return text("nvmlDeviceGetPciInfo", h, pci->bus_id, sizeof pci->bus_id);
}

int nvmlDeviceGetUtilizationRates(void *h, utilization_t *use)
{
	ull values[NUMBERS];
	int code = numbers("nvmlDeviceGetUtilizationRates", h, values);
	if (!code)
		*use = (utilization_t){ (uint)values[0], (uint)values[1] };
	return code;
}

/* total, reserved, free, used; the older call counts what is reserved as used. */
int nvmlDeviceGetMemoryInfo_v2(void *h, memory_v2_t *memory)
{
	ull v[NUMBERS];
	int code = numbers("nvmlDeviceGetMemoryInfo_v2", h, v);
	if (!code)
		*memory = (memory_v2_t){ memory->version, v[0], v[1], v[2], v[3] };
	return code;
}

int nvmlDeviceGetMemoryInfo(void *h, memory_t *memory)
{
	ull v[NUMBERS];
	int code = numbers("nvmlDeviceGetMemoryInfo", h, v);
	if (!code)
		*memory = (memory_t){ v[0], v[1], v[2] };
	return code;
}

/* state, health mask */
int nvmlDeviceGetGpuFabricInfoV(void *h, fabric_t *fabric)
{
	ull v[NUMBERS];
	int code = numbers("nvmlDeviceGetGpuFabricInfoV", h, v);
	if (!code) {
		fabric->state = (uint)v[0];
		fabric->health = (uint)v[1];
	}
	return code;
}

int nvmlDeviceGetTotalEnergyConsumption(void *h, ull *millijoules)
{
	ull values[NUMBERS];
	int code = numbers("nvmlDeviceGetTotalEnergyConsumption", h, values);
	if (!code)
		*millijoules = values[0];
	return code;
}

int nvmlDeviceGetTemperature(void *h, uint sensor, uint *celsius)
{
	(void)sensor;
	return number("nvmlDeviceGetTemperature", h, celsius);
}

int nvmlDeviceGetTemperatureV(void *h, temperature_t *temperature)
{
	uint celsius;
	int code = number("nvmlDeviceGetTemperatureV", h, &celsius);
	if (!code)
		temperature->temperature = (int)celsius;
	return code;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *h, uint *size, process_t *list)
{
	return processes("nvmlDeviceGetComputeRunningProcesses", h, "process", size, list);
}

int nvmlDeviceGetGraphicsRunningProcesses_v3(void *h, uint *size, process_t *list)
{
	return processes("nvmlDeviceGetGraphicsRunningProcesses", h, "graphics", size, list);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *h, uint *size, process_t *list)
{
	return processes("nvmlDeviceGetMPSComputeRunningProcesses", h, "mps", size, list);
}

int nvmlDeviceGetMigMode(void *h, uint *current, uint *pending)
{
	int device = device_of(h), code = behave("nvmlDeviceGetMigMode", device);
	*current = *pending = setting("mig", device) > 0;
	return code;
}

int nvmlDeviceGetMaxMigDeviceCount(void *h, uint *most)
{
	*most = 7;
	return behave("nvmlDeviceGetMaxMigDeviceCount", device_of(h));
}

int nvmlDeviceGetMigDeviceHandleByIndex(void *h, uint index, void **instance)
{
	int device = device_of(h), code = behave("nvmlDeviceGetMigDeviceHandleByIndex", device);
	*instance = code || index >= setting("mig", device) ? NULL : handle_of(100 * (device + 1) + (int)index);
	return code ? code : *instance ? SUCCESS : NOT_FOUND;
}

/* Find the lines "verb device ..." and return the text after the device of the one with this number, or of any. */
static int find_number(const char *verb, int device, uint wanted, char *rest)
{
	char line[LINE], head[64];
	int found = 0;
	FILE *file = scenario();
	snprintf(head, sizeof head, "%s %d ", verb, device);
	while (file && fgets(line, sizeof line, file)) {
		if (strncmp(line, head, strlen(head)) || (wanted && strtoul(line + strlen(head), NULL, 10) != wanted))
			continue;
		found = 1;
		snprintf(rest, LINE, "%s", line + strlen(head));
	}
	if (file)
		fclose(file);
	return found;
}

static ull now_micros(void)
{
	struct timespec now;
	clock_gettime(CLOCK_REALTIME, &now);
	return now.tv_sec * 1000000ULL + now.tv_nsec / 1000;
}

int nvmlGpmQueryDeviceSupport(void *h, support_t *support)
{
	char rest[LINE];
	int device = device_of(h), code = behave("nvmlGpmQueryDeviceSupport", device);
	support->is_supported = find_number("gpm", device < 100 ? device : device / 100 - 1, 0, rest);
	return code;
}

int nvmlGpmSampleAlloc(gpm_sample_t **sample)
{
	*sample = calloc(1, sizeof **sample);
	return behave("nvmlGpmSampleAlloc", ALL);
}

int nvmlGpmSampleFree(gpm_sample_t *sample)
{
	free(sample);
	return behave("nvmlGpmSampleFree", ALL);
}

int nvmlGpmSampleGet(void *h, gpm_sample_t *sample)
{
	sample->device = device_of(h);
	return behave("nvmlGpmSampleGet", sample->device);
}

int nvmlGpmMigSampleGet(void *h, uint instance, gpm_sample_t *sample)
{
	sample->device = 1000 * (device_of(h) + 1) + (int)instance;
	return behave("nvmlGpmMigSampleGet", device_of(h));
}

int nvmlGpmMetricsGet(gpm_get_t *get)
{
	char rest[LINE];
	uint number;
	for (uint i = 0; i < get->count; i++) {
		gpm_metric_t *metric = &get->metrics[i];
		int is_known = find_number("gpm", get->second->device, metric->id, rest);
		metric->code = is_known && sscanf(rest, "%u %lf", &number, &metric->value) == 2 ? SUCCESS : NOT_SUPPORTED;
	}
	return behave("nvmlGpmMetricsGet", get->second->device);
}

int nvmlDeviceGetSamples(void *h, int kind, ull seen, uint *type, uint *size, sample_t *list)
{
	char rest[LINE];
	int device = device_of(h), code = behave("nvmlDeviceGetSamples", device);
	uint found = 0, room = *size;
	char stamp[LINE];
	int is_fixed = find_number("stamp", device, 0, stamp);
	(void)kind;
	*type = 1;
	if (is_fixed && seen >= strtoull(stamp, NULL, 10)) /* the real one gives what is newer than the caller has seen */
		return code ? code : NOT_FOUND;
	if (code || !find_number("samples", device, 0, rest))
		return code ? code : NOT_SUPPORTED;
	for (char *word = strtok(rest, " \n"); word; word = strtok(NULL, " \n"), found++)
		if (list && found < room)
			list[found] = (sample_t){ is_fixed ? strtoull(stamp, NULL, 10) : now_micros() + found,
						  { .whole = strtoull(word, NULL, 10) } };
	*size = found;
	return SUCCESS;
}

int nvmlDeviceGetProcessUtilization(void *h, share_t *list, uint *size, ull seen)
{
	char line[LINE];
	int wanted = device_of(h), code = behave("nvmlDeviceGetProcessUtilization", wanted), device;
	uint pid, share, found = 0;
	FILE *file = code ? NULL : scenario();
	(void)seen;
	while (file && fgets(line, sizeof line, file)) {
		if (sscanf(line, "share %d %u %u", &device, &pid, &share) != 3 || device != wanted)
			continue;
		if (list && found < *size)
			list[found] = (share_t){ pid, now_micros(), share, 0, 0, 0 };
		found++;
	}
	if (file)
		fclose(file);
	*size = found;
	return code ? code : list ? SUCCESS : found ? INSUFFICIENT_SIZE : NOT_FOUND;
}

int nvmlDeviceGetFieldValues(void *h, int count_, field_t *fields)
{
	char rest[LINE];
	int device = device_of(h);
	uint number;
	for (int i = 0; i < count_; i++) {
		int is_known = find_number("field", device, fields[i].id + 1000 * fields[i].scope, rest);
		fields[i].code = is_known && sscanf(rest, "%u %llu", &number, &fields[i].value.whole) == 2 ? SUCCESS : NOT_SUPPORTED;
	}
	return behave("nvmlDeviceGetFieldValues", device);
}

typedef struct { void *device; ull type, data; uint gpu_instance, compute_instance; } event_t;

int nvmlEventSetCreate(void **set) { *set = handle_of(0); return behave("nvmlEventSetCreate", ALL); }
int nvmlEventSetFree(void *set) { (void)set; return behave("nvmlEventSetFree", ALL); }

int nvmlDeviceRegisterEvents(void *h, ull types, void *set)
{
	(void)types, (void)set;
	return behave("nvmlDeviceRegisterEvents", device_of(h));
}

int nvmlEventSetWait_v2(void *set, event_t *event, uint milliseconds)
{
	static uint taken;
	char line[LINE];
	int device, code = behave("nvmlEventSetWait", ALL);
	uint xid, instance, seen = 0;
	FILE *file = code ? NULL : scenario();
	(void)set, (void)milliseconds;
	while (file && fgets(line, sizeof line, file)) {
		instance = 0xffffffff;
		if (sscanf(line, "xid %d %u %u", &device, &xid, &instance) < 2 || seen++ < taken)
			continue;
		taken++;
		*event = (event_t){ handle_of(device), 8, xid, instance, 0xffffffff };
		fclose(file);
		return SUCCESS;
	}
	if (file)
		fclose(file);
	return code ? code : 10;
}
