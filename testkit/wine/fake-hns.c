/*
 * HNS of one host as a library for Wine: the functions of computenetwork.dll and vmcompute.dll that kube-proxy calls, with the
 * behaviour of testkit/fakes/hcn/memory-hcn.ts. Both pass the same contract.
 *
 * The environment variable FAKE_HNS_STATE names the state file, which has UTF-8 lines: "V major minor", "C last-number", and one line for
 * each object: "N|E|L id document". It is read at every call, so that a test can change it, and written at every change. FAKE_HNS_LOG
 * records the names of calls. Notifications are read from FAKE_HNS_NOTICES, one number of HCN_NOTIFICATIONS per line.
 */
#include <windows.h>
#include <objbase.h>
#include <stdio.h>
#include <stdlib.h>
#include <wchar.h>

#define NOT_FOUND 0x80070490
#define NOT_IMPLEMENTED 0x80004001
#define NETWORK_NOT_FOUND 0x803b0001
#define ENDPOINT_NOT_FOUND 0x803b0002
#define PORT_ALREADY_EXISTS 0x803b0013
#define BAD_GUID 0x803b0019
#define BAD_JSON 0x803b001b
#define LACKS_REFERENCE 0x803b001c
#define BAD_INTERNAL_PORT 0x803b002d
#define RESERVED_ADDRESS 0x803b002f
#define USED_AFTER_UNLOAD 0x803b0031

#define MOST_OBJECTS 20000
#define MOST_HANDLES 4096
#define MOST_WATCHERS 64
#define SERVICE_DISCONNECT 0x01000000
#define NOTICES_PAUSE_MS 20
#define ID_LENGTH 36
#define EXPORT __declspec(dllexport)

typedef struct {
  char kind; /* N, E or L */
  wchar_t id[ID_LENGTH + 1];
  wchar_t *document;
} Object;

static Object objects[MOST_OBJECTS];
static int object_count;
static int version_major = 15, version_minor = 5, last_number;
static struct { char kind; wchar_t id[ID_LENGTH + 1]; } handles[MOST_HANDLES];
static SRWLOCK lock = SRWLOCK_INIT;

typedef void(WINAPI *Notification)(DWORD type, void *context, HRESULT result, PCWSTR data);
static struct { Notification call; void *context; } watchers[MOST_WATCHERS];
static int is_telling;
static SRWLOCK watchers_lock = SRWLOCK_INIT;

/* JSON: every function takes the position of a value, and returns NULL if it is absent or not JSON. */

static const wchar_t *blanks(const wchar_t *at) {
  while (*at == L' ' || *at == L'\t' || *at == L'\n' || *at == L'\r') at++;
  return at;
}

static const wchar_t *after_string(const wchar_t *at) {
  if (*at++ != L'"') return NULL;
  while (*at != L'"') {
    if (*at == 0) return NULL;
    if (*at == L'\\' && *++at == 0) return NULL;
    at++;
  }
  return at + 1;
}

static const wchar_t *after_value(const wchar_t *at) {
  at = blanks(at);
  if (*at == L'"') return after_string(at);
  if (*at == L'{' || *at == L'[') {
    wchar_t end = *at == L'{' ? L'}' : L']';
    int is_object = *at == L'{';
    at = blanks(at + 1);
    if (*at == end) return at + 1;
    for (;;) {
      if (is_object) {
        at = after_string(blanks(at));
        if (at == NULL) return NULL;
        at = blanks(at);
        if (*at++ != L':') return NULL;
      }
      at = after_value(at);
      if (at == NULL) return NULL;
      at = blanks(at);
      if (*at == end) return at + 1;
      if (*at++ != L',') return NULL;
    }
  }
  if (wcschr(L"-0123456789tfn", *at) == NULL || *at == 0) return NULL;
  while (*at != 0 && wcschr(L"+-.0123456789abcdefghijklmnopqrstuvwxyzE", *at) != NULL) at++;
  return at;
}

static int is_json(const wchar_t *text) {
  const wchar_t *end = after_value(text);
  return end != NULL && *blanks(end) == 0;
}

/* The value of a key of an object. */
static const wchar_t *member(const wchar_t *object, const wchar_t *key) {
  size_t length = wcslen(key);
  if (object == NULL) return NULL;
  object = blanks(object);
  if (*object != L'{') return NULL;
  for (const wchar_t *at = blanks(object + 1); *at == L'"';) {
    const wchar_t *name = at + 1;
    at = after_string(at);
    int is_it = (size_t)(at - name - 1) == length && wcsncmp(name, key, length) == 0;
    at = blanks(at) + 1;
    at = blanks(at);
    if (is_it) return at;
    at = blanks(after_value(at));
    if (*at == L',') at = blanks(at + 1);
  }
  return NULL;
}

/* The first value of a list, and the one after a value. */
static const wchar_t *first_of(const wchar_t *list) {
  if (list == NULL || *(list = blanks(list)) != L'[') return NULL;
  list = blanks(list + 1);
  return *list == L']' ? NULL : list;
}

static const wchar_t *next_of(const wchar_t *value) {
  value = blanks(after_value(value));
  return *value == L',' ? blanks(value + 1) : NULL;
}

static int number_of(const wchar_t *value) { return value == NULL ? 0 : (int)wcstol(value, NULL, 10); }

/* A string without its escapes, which the caller frees; empty for other values. */
static wchar_t *text_of(const wchar_t *value) {
  size_t most = value == NULL ? 0 : wcslen(value);
  wchar_t *text = calloc(most + 1, sizeof *text), *to = text;
  if (value == NULL || *value != L'"') return text;
  for (value++; *value != L'"'; value++) {
    if (*value != L'\\') *to++ = *value;
    else if (*++value == L'n') *to++ = L'\n';
    else if (*value == L't') *to++ = L'\t';
    else if (*value == L'u') {
      wchar_t digits[5] = {value[1], value[2], value[3], value[4], 0};
      *to++ = (wchar_t)wcstol(digits, NULL, 16);
      value += 4;
    } else *to++ = *value;
  }
  return text;
}

static int is_text(const wchar_t *value, const wchar_t *wanted) {
  wchar_t *text = text_of(value);
  int is_it = _wcsicmp(text, wanted) == 0;
  free(text);
  return is_it;
}

/* State */

static void forget_all(void) {
  for (int i = 0; i < object_count; i++) free(objects[i].document);
  object_count = 0;
}

static void add_object(char kind, const wchar_t *id, const wchar_t *document) {
  Object *object = &objects[object_count++];
  object->kind = kind;
  wcsncpy(object->id, id, ID_LENGTH);
  object->id[ID_LENGTH] = 0;
  object->document = _wcsdup(document);
}

static FILE *open_named(const wchar_t *variable, const wchar_t *mode) {
  wchar_t path[MAX_PATH];
  DWORD length = GetEnvironmentVariableW(variable, path, MAX_PATH);
  return length == 0 || length >= MAX_PATH ? NULL : _wfopen(path, mode);
}

static void load(void) {
  FILE *file = open_named(L"FAKE_HNS_STATE", L"rb");
  if (file == NULL) return;
  fseek(file, 0, SEEK_END);
  long size = ftell(file);
  fseek(file, 0, SEEK_SET);
  char *bytes = calloc(size + 1, 1);
  size = (long)fread(bytes, 1, size, file);
  fclose(file);
  int length = MultiByteToWideChar(CP_UTF8, 0, bytes, size, NULL, 0);
  wchar_t *text = calloc(length + 1, sizeof *text);
  MultiByteToWideChar(CP_UTF8, 0, bytes, size, text, length);
  free(bytes);
  forget_all();
  for (wchar_t *line = text, *end; *line != 0; line = end) {
    end = wcschr(line, L'\n');
    if (end == NULL) end = line + wcslen(line);
    else *end++ = 0;
    if (*line == L'V') swscanf(line, L"V %d %d", &version_major, &version_minor);
    else if (*line == L'C') swscanf(line, L"C %d", &last_number);
    else if (wcslen(line) > ID_LENGTH + 3) add_object((char)*line, line + 2, line + 3 + ID_LENGTH);
  }
  free(text);
}

static void save(void) {
  FILE *file = open_named(L"FAKE_HNS_STATE", L"wb");
  if (file == NULL) return;
  fprintf(file, "V %d %d\nC %d\n", version_major, version_minor, last_number);
  for (int i = 0; i < object_count; i++) {
    int length = WideCharToMultiByte(CP_UTF8, 0, objects[i].document, -1, NULL, 0, NULL, NULL);
    char *bytes = calloc(length + 1, 1);
    WideCharToMultiByte(CP_UTF8, 0, objects[i].document, -1, bytes, length, NULL, NULL);
    fprintf(file, "%c %ls %s\n", objects[i].kind, objects[i].id, bytes);
    free(bytes);
  }
  fclose(file);
}

static Object *find(char kind, const wchar_t *id) {
  for (int i = 0; i < object_count; i++) {
    if (objects[i].kind == kind && _wcsicmp(objects[i].id, id) == 0) return &objects[i];
  }
  return NULL;
}

static Object *create(char kind, const wchar_t *document) {
  wchar_t id[ID_LENGTH + 1];
  int group = kind == 'N' ? 1 : kind == 'E' ? 2 : 3;
  swprintf(id, ID_LENGTH + 1, L"%d0000000-0000-4000-8000-%012d", group, ++last_number);
  add_object(kind, id, document);
  save();
  return &objects[object_count - 1];
}

static void id_of_guid(const GUID *guid, wchar_t *id) {
  const unsigned char *tail = guid->Data4;
  swprintf(id, ID_LENGTH + 1, L"%08lx-%04x-%04x-%02x%02x-%02x%02x%02x%02x%02x%02x", guid->Data1, guid->Data2, guid->Data3,
           tail[0], tail[1], tail[2], tail[3], tail[4], tail[5], tail[6], tail[7]);
}

/* Handles are numbers, not addresses, so that stale ones are detected. */

static void *open_handle(char kind, const wchar_t *id) {
  for (int i = 0; i < MOST_HANDLES; i++) {
    if (handles[i].kind != 0) continue;
    handles[i].kind = kind;
    wcscpy(handles[i].id, id);
    return (void *)(size_t)(0x1000 + i);
  }
  return NULL;
}

static Object *opened(char kind, void *handle) {
  size_t index = (size_t)handle - 0x1000;
  if (index >= MOST_HANDLES || handles[index].kind != kind) return NULL;
  return find(kind, handles[index].id);
}

/* Answers */

static wchar_t *answer(const wchar_t *text) {
  size_t size = (wcslen(text) + 1) * sizeof *text;
  wchar_t *copy = CoTaskMemAlloc(size);
  memcpy(copy, text, size);
  return copy;
}

static HRESULT failed(HRESULT result, wchar_t **error) {
  wchar_t record[128];
  swprintf(record, 128, L"{\"Success\":false,\"Error\":\"refused\",\"ErrorCode\":%lu}", (unsigned long)result);
  if (error != NULL) *error = answer(record);
  return result;
}

static void begin(const char *name) {
  AcquireSRWLockExclusive(&lock);
  FILE *log = open_named(L"FAKE_HNS_LOG", L"ab");
  if (log != NULL) {
    fprintf(log, "%s\n", name);
    fclose(log);
  }
  load();
}

static HRESULT end(HRESULT result) {
  ReleaseSRWLockExclusive(&lock);
  return result;
}

/* What HNS does */

static int is_guid(const wchar_t *text) {
  if (wcslen(text) != ID_LENGTH) return 0;
  for (int i = 0; i < ID_LENGTH; i++) {
    int is_dash = i == 8 || i == 13 || i == 18 || i == 23;
    if (is_dash ? text[i] != L'-' : !iswxdigit(text[i])) return 0;
  }
  return 1;
}

static int matches(const Object *object, const wchar_t *filter) {
  const wchar_t *id = member(filter, L"ID"), *name = member(filter, L"Name"), *network = member(filter, L"VirtualNetwork");
  wchar_t *own_name = text_of(member(object->document, L"Name"));
  wchar_t *own_network = text_of(member(object->document, L"HostComputeNetwork"));
  int is_it = (id == NULL || is_text(id, object->id)) && (name == NULL || is_text(name, own_name)) &&
              (network == NULL || is_text(network, own_network));
  free(own_name);
  free(own_network);
  return is_it;
}

static HRESULT enumerate(char kind, const wchar_t *query, wchar_t **ids, wchar_t **error) {
  if (!is_json(query)) return failed(BAD_JSON, error);
  wchar_t *filter = text_of(member(query, L"Filter"));
  if (*filter != 0 && !is_json(filter)) { free(filter); return failed(BAD_JSON, error); }
  wchar_t *wanted = text_of(member(filter, L"ID"));
  int is_bad = member(filter, L"ID") != NULL && !is_guid(wanted);
  free(wanted);
  if (is_bad) { free(filter); return failed(BAD_GUID, error); }
  wchar_t *list = calloc((size_t)object_count * (ID_LENGTH + 3) + 3, sizeof *list), *to = list;
  *to++ = L'[';
  for (int i = 0; i < object_count; i++) {
    if (objects[i].kind != kind || !matches(&objects[i], filter)) continue;
    if (to[-1] != L'[') *to++ = L',';
    *to++ = L'"';
    wcscpy(to, objects[i].id);
    to += ID_LENGTH;
    *to++ = L'"';
  }
  *to++ = L']';
  *ids = answer(list);
  free(list);
  free(filter);
  return 0;
}

static HRESULT open_object(char kind, const GUID *guid, void **handle, wchar_t **error) {
  wchar_t id[ID_LENGTH + 1];
  id_of_guid(guid, id);
  Object *object = find(kind, id);
  if (object == NULL) return failed(NOT_FOUND, error);
  *handle = open_handle(kind, object->id);
  return 0;
}

static HRESULT query_object(char kind, void *handle, wchar_t **properties, wchar_t **error) {
  Object *object = opened(kind, handle);
  if (object == NULL) return failed(NOT_FOUND, error);
  const wchar_t *rest = blanks(object->document + 1);
  size_t most = wcslen(rest) + ID_LENGTH + 16;
  wchar_t *text = calloc(most, sizeof *text);
  swprintf(text, most, L"{\"ID\":\"%ls\"%ls%ls", object->id, *rest == L'}' ? L"" : L",", rest);
  *properties = answer(text);
  free(text);
  return 0;
}

static HRESULT close_object(void *handle) {
  size_t index = (size_t)handle - 0x1000;
  if (index < MOST_HANDLES) handles[index].kind = 0;
  return 0;
}

static HRESULT delete_object(char kind, const GUID *guid, wchar_t **error) {
  wchar_t id[ID_LENGTH + 1];
  id_of_guid(guid, id);
  Object *object = find(kind, id);
  if (object == NULL) return failed(NOT_FOUND, error);
  free(object->document);
  memmove(object, object + 1, (char *)&objects[object_count] - (char *)(object + 1));
  object_count--;
  save();
  return 0;
}

static int in_prefix(const wchar_t *address, const wchar_t *prefix) {
  unsigned a, b, c, d, length, e, f, g, h;
  if (swscanf(address, L"%u.%u.%u.%u", &a, &b, &c, &d) != 4) return 1; /* only IPv4 is checked */
  if (swscanf(prefix, L"%u.%u.%u.%u/%u", &e, &f, &g, &h, &length) != 5) return 0;
  unsigned long mask = length == 0 ? 0 : 0xfffffffful << (32 - length);
  return (((a << 24 | b << 16 | c << 8 | d) ^ (e << 24 | f << 16 | g << 8 | h)) & mask) == 0;
}

/* A local endpoint must be in a subnet, if the network has any. */
static int is_reserved(const Object *network, const wchar_t *document) {
  if (number_of(member(document, L"Flags")) == 1) return 0;
  for (const wchar_t *one = first_of(member(document, L"IpConfigurations")); one != NULL; one = next_of(one)) {
    wchar_t *address = text_of(member(one, L"IpAddress"));
    int subnets = 0, is_in = 0;
    for (const wchar_t *ipam = first_of(member(network->document, L"Ipams")); ipam != NULL; ipam = next_of(ipam)) {
      for (const wchar_t *subnet = first_of(member(ipam, L"Subnets")); subnet != NULL; subnet = next_of(subnet)) {
        wchar_t *prefix = text_of(member(subnet, L"IpAddressPrefix"));
        subnets++;
        is_in |= in_prefix(address, prefix);
        free(prefix);
      }
    }
    free(address);
    if (subnets > 0 && !is_in) return 1;
  }
  return 0;
}

/* Whether two load balancers share a frontend: address, protocol and port. */
static int share_place(const wchar_t *vip, const wchar_t *mapping, int flags, const wchar_t *other) {
  const wchar_t *vips = first_of(member(other, L"FrontendVIPs"));
  int is_same_place = vip == NULL && vips == NULL && (flags & 2) == (number_of(member(other, L"Flags")) & 2);
  if (vip != NULL) {
    wchar_t *address = text_of(vip);
    for (; vips != NULL; vips = next_of(vips)) is_same_place |= is_text(vips, address);
    free(address);
  }
  if (!is_same_place) return 0;
  for (const wchar_t *one = first_of(member(other, L"PortMappings")); one != NULL; one = next_of(one)) {
    if (number_of(member(one, L"Protocol")) == number_of(member(mapping, L"Protocol")) &&
        number_of(member(one, L"ExternalPort")) == number_of(member(mapping, L"ExternalPort"))) return 1;
  }
  return 0;
}

static HRESULT check_load_balancer(const wchar_t *document, const Object *own) {
  const wchar_t *endpoint = first_of(member(document, L"HostComputeEndpoints"));
  if (endpoint == NULL) return LACKS_REFERENCE;
  for (; endpoint != NULL; endpoint = next_of(endpoint)) {
    wchar_t *id = text_of(endpoint);
    int is_there = find('E', id) != NULL;
    free(id);
    if (!is_there) return ENDPOINT_NOT_FOUND;
  }
  int flags = number_of(member(document, L"Flags"));
  for (const wchar_t *mapping = first_of(member(document, L"PortMappings")); mapping != NULL; mapping = next_of(mapping)) {
    if (number_of(member(mapping, L"InternalPort")) == 0) return BAD_INTERNAL_PORT;
    const wchar_t *vip = first_of(member(document, L"FrontendVIPs"));
    do {
      for (int i = 0; i < object_count; i++) {
        if (objects[i].kind != 'L' || &objects[i] == own) continue;
        if (share_place(vip, mapping, flags, objects[i].document)) return PORT_ALREADY_EXISTS;
      }
      if (vip != NULL) vip = next_of(vip);
    } while (vip != NULL);
  }
  return 0;
}

static void tell(DWORD type) {
  for (int i = 0; i < MOST_WATCHERS; i++) {
    AcquireSRWLockExclusive(&watchers_lock);
    Notification call = watchers[i].call;
    void *context = watchers[i].context;
    if (type == SERVICE_DISCONNECT) watchers[i].call = NULL;
    ReleaseSRWLockExclusive(&watchers_lock);
    if (call != NULL) call(type, context, 0, L"{}");
  }
}

/* Reads notices as they are written, starting after those already there. */
static DWORD WINAPI tell_all(void *from) {
  for (long at = (long)(size_t)from; is_telling; Sleep(NOTICES_PAUSE_MS)) {
    FILE *file = open_named(L"FAKE_HNS_NOTICES", L"rb");
    if (file == NULL) continue;
    fseek(file, at, SEEK_SET);
    char line[32];
    while (fgets(line, sizeof line, file) != NULL && strchr(line, '\n') != NULL) {
      at = ftell(file);
      tell((DWORD)strtoul(line, NULL, 10));
    }
    fclose(file);
  }
  return 0;
}

/* Exports */

#define OF_KIND(Name, kind)                                                                                            \
  EXPORT HRESULT WINAPI HcnEnumerate##Name##s(PCWSTR query, PWSTR *ids, PWSTR *error) {                                \
    begin("HcnEnumerate" #Name "s");                                                                                   \
    return end(enumerate(kind, query, ids, error));                                                                    \
  }                                                                                                                    \
  EXPORT HRESULT WINAPI HcnOpen##Name(const GUID *id, void **handle, PWSTR *error) {                                   \
    begin("HcnOpen" #Name);                                                                                            \
    return end(open_object(kind, id, handle, error));                                                                  \
  }                                                                                                                    \
  EXPORT HRESULT WINAPI HcnQuery##Name##Properties(void *handle, PCWSTR query, PWSTR *properties, PWSTR *error) {      \
    (void)query;                                                                                                       \
    begin("HcnQuery" #Name "Properties");                                                                              \
    return end(query_object(kind, handle, properties, error));                                                         \
  }                                                                                                                    \
  EXPORT HRESULT WINAPI HcnClose##Name(void *handle) {                                                                 \
    begin("HcnClose" #Name);                                                                                           \
    return end(close_object(handle));                                                                                  \
  }                                                                                                                    \
  EXPORT HRESULT WINAPI HcnDelete##Name(const GUID *id, PWSTR *error) {                                                \
    begin("HcnDelete" #Name);                                                                                          \
    return end(delete_object(kind, id, error));                                                                        \
  }

OF_KIND(Network, 'N')
OF_KIND(Endpoint, 'E')
OF_KIND(LoadBalancer, 'L')

EXPORT HRESULT WINAPI HcnRegisterServiceCallback(Notification call, void *context, void **handle) {
  begin("HcnRegisterServiceCallback");
  AcquireSRWLockExclusive(&watchers_lock);
  int i = 0;
  while (i < MOST_WATCHERS && watchers[i].call != NULL) i++;
  if (i < MOST_WATCHERS) {
    watchers[i].call = call;
    watchers[i].context = context;
    *handle = (void *)(size_t)(0x9000 + i);
  }
  int is_first = !is_telling;
  is_telling = 1;
  ReleaseSRWLockExclusive(&watchers_lock);
  FILE *file = is_first ? open_named(L"FAKE_HNS_NOTICES", L"rb") : NULL;
  if (file != NULL) {
    HMODULE pinned;
    fseek(file, 0, SEEK_END);
    /* The thread outlives the last user of the library. */
    GetModuleHandleExW(GET_MODULE_HANDLE_EX_FLAG_PIN | GET_MODULE_HANDLE_EX_FLAG_FROM_ADDRESS, (PCWSTR)(void *)tell_all, &pinned);
    CloseHandle(CreateThread(NULL, 0, tell_all, (void *)(size_t)ftell(file), 0, NULL));
    fclose(file);
  }
  return end(i < MOST_WATCHERS ? 0 : (HRESULT)USED_AFTER_UNLOAD);
}

EXPORT HRESULT WINAPI HcnUnregisterServiceCallback(void *handle) {
  begin("HcnUnregisterServiceCallback");
  size_t i = (size_t)handle - 0x9000;
  AcquireSRWLockExclusive(&watchers_lock);
  HRESULT result = i < MOST_WATCHERS && watchers[i].call != NULL ? 0 : (HRESULT)NOT_FOUND;
  if (result == 0) watchers[i].call = NULL;
  ReleaseSRWLockExclusive(&watchers_lock);
  return end(result);
}

EXPORT HRESULT WINAPI HcnCreateEndpoint(void *network, const GUID *id, PCWSTR settings, void **handle, PWSTR *error) {
  (void)id;
  begin("HcnCreateEndpoint");
  Object *on = opened('N', network);
  if (on == NULL) return end(failed(NETWORK_NOT_FOUND, error));
  if (!is_json(settings)) return end(failed(BAD_JSON, error));
  if (is_reserved(on, settings)) return end(failed(RESERVED_ADDRESS, error));
  size_t most = wcslen(settings) + 32;
  wchar_t *document = calloc(most, sizeof *document);
  if (member(settings, L"Name") != NULL) wcscpy(document, settings);
  else swprintf(document, most, L"{\"Name\":\"Ethernet\",%ls", settings + 1);
  *handle = open_handle('E', create('E', document)->id);
  free(document);
  return end(0);
}

EXPORT HRESULT WINAPI HcnCreateLoadBalancer(const GUID *id, PCWSTR settings, void **handle, PWSTR *error) {
  (void)id;
  begin("HcnCreateLoadBalancer");
  if (!is_json(settings)) return end(failed(BAD_JSON, error));
  HRESULT refusal = check_load_balancer(settings, NULL);
  if (refusal != 0) return end(failed(refusal, error));
  *handle = open_handle('L', create('L', settings)->id);
  return end(0);
}

EXPORT HRESULT WINAPI HcnModifyLoadBalancer(void *handle, PCWSTR settings, PWSTR *error) {
  begin("HcnModifyLoadBalancer");
  Object *own = opened('L', handle);
  if (own == NULL) return end(failed(USED_AFTER_UNLOAD, error));
  if (version_major < 15 || (version_major == 15 && version_minor < 5)) return end(failed(NOT_IMPLEMENTED, error));
  if (!is_json(settings)) return end(failed(BAD_JSON, error));
  HRESULT refusal = check_load_balancer(settings, own);
  if (refusal != 0) return end(failed(refusal, error));
  free(own->document);
  own->document = _wcsdup(settings);
  save();
  return end(0);
}

/* Each load balancer's ID, in upper case as the first version writes it, and its action. */
static wchar_t *policy_lists(void) {
  size_t most = 64;
  for (int i = 0; i < object_count; i++) if (objects[i].kind == 'L') most += wcslen(objects[i].document) + ID_LENGTH + 64;
  wchar_t *text = calloc(most, sizeof *text), *at = text;
  at += swprintf(at, most, L"{\"Success\":true,\"Output\":[");
  const wchar_t *separator = L"";
  for (int i = 0; i < object_count; i++) {
    if (objects[i].kind != 'L') continue;
    wchar_t id[ID_LENGTH + 1];
    wcscpy(id, objects[i].id);
    _wcsupr(id);
    at += swprintf(at, most - (size_t)(at - text), L"%ls{\"ID\":\"%ls\",\"Policies\":[%ls]}", separator, id, objects[i].document);
    separator = L",";
  }
  wcscpy(at, L"]}");
  wchar_t *copy = answer(text);
  free(text);
  return copy;
}

EXPORT HRESULT WINAPI HNSCall(PCWSTR method, PCWSTR path, PCWSTR body, PWSTR *response) {
  (void)method;
  (void)body;
  begin("HNSCall");
  wchar_t text[256];
  if (wcscmp(path, L"/policylists/") == 0) {
    *response = policy_lists();
    return end(0);
  }
  if (wcscmp(path, L"/globals/version") == 0) {
    swprintf(text, 256, L"{\"Success\":true,\"Output\":{\"Major\":%d,\"Minor\":%d}}", version_major, version_minor);
  } else wcscpy(text, L"{\"Success\":false,\"Error\":\"unknown path\"}");
  *response = answer(text);
  return end(0);
}
