/*
 * netsh of a Windows host for Wine, whose own does nothing: "interface ipv4|ipv6 add|delete address" and "-f FILE". Addresses are those of
 * the network namespace that Wine runs in: it calls Linux directly, whose results decide the outcome of a command. The messages are those
 * of Windows in English. Behaves as src/modes/userspace/testing/memory-netsh.ts; both pass the same contract.
 */
#include <winsock2.h>
#include <ws2tcpip.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* System calls of Linux, x86-64. */
enum { SYS_CLOSE = 3, SYS_IOCTL = 16, SYS_SOCKET = 41, SYS_SENDTO = 44, SYS_RECVFROM = 45 };
enum { LINUX_AF_NETLINK = 16, LINUX_SOCK_RAW = 3, LINUX_SOCK_DGRAM = 2, SIOCGIFINDEX = 0x8933 };
enum { LINUX_AF_INET = 2, LINUX_AF_INET6 = 10 };
enum { RTM_NEWADDR = 20, RTM_DELADDR = 21, NLM_F_REQUEST = 1, NLM_F_ACK = 4, NLM_F_CREATE = 0x400, NLM_F_EXCL = 0x200 };
enum { IFA_ADDRESS = 1, IFA_LOCAL = 2 };
enum { LINUX_ENODEV = 19, LINUX_EEXIST = 17, LINUX_EADDRNOTAVAIL = 99 };

static intptr_t linux_call(intptr_t number, intptr_t a, intptr_t b, intptr_t c, intptr_t d, intptr_t e, intptr_t f) {
  intptr_t result;
  register intptr_t r10 __asm__("r10") = d;
  register intptr_t r8 __asm__("r8") = e;
  register intptr_t r9 __asm__("r9") = f;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return result;
}

static int interface_index(const char *name) {
  char request[40] = {0}; /* struct ifreq */
  if (strlen(name) > 15) return -LINUX_ENODEV;
  strcpy(request, name);
  intptr_t fd = linux_call(SYS_SOCKET, LINUX_AF_INET, LINUX_SOCK_DGRAM, 0, 0, 0, 0);
  intptr_t result = linux_call(SYS_IOCTL, fd, SIOCGIFINDEX, (intptr_t)request, 0, 0, 0);
  linux_call(SYS_CLOSE, fd, 0, 0, 0, 0, 0);
  return result < 0 ? (int)result : *(int *)(request + 16);
}

/* Returns 0, or the negative error number of Linux. */
static int change_address(int type, int family, int length, const void *address, int index) {
  struct {
    uint32_t size; uint16_t type, flags; uint32_t sequence, pid;  /* struct nlmsghdr */
    uint8_t family, prefix, address_flags, scope; uint32_t index; /* struct ifaddrmsg */
    uint8_t attributes[64];
  } message = {0};
  uint8_t *at = message.attributes;
  for (int kind = IFA_ADDRESS; kind <= IFA_LOCAL; kind++) {
    *(uint16_t *)at = (uint16_t)(4 + length);
    *(uint16_t *)(at + 2) = (uint16_t)kind;
    memcpy(at + 4, address, (size_t)length);
    at += 4 + length;
  }
  message.size = (uint32_t)(at - (uint8_t *)&message);
  message.type = (uint16_t)type;
  message.flags = NLM_F_REQUEST | NLM_F_ACK | (type == RTM_NEWADDR ? NLM_F_CREATE | NLM_F_EXCL : 0);
  message.family = (uint8_t)family;
  message.prefix = (uint8_t)(length * 8);
  message.index = (uint32_t)index;
  struct { uint16_t family, padding; uint32_t pid, groups; } kernel = { LINUX_AF_NETLINK, 0, 0, 0 };
  uint8_t answer[256];
  intptr_t fd = linux_call(SYS_SOCKET, LINUX_AF_NETLINK, LINUX_SOCK_RAW, 0, 0, 0, 0);
  if (fd < 0) return (int)fd;
  intptr_t result = linux_call(SYS_SENDTO, fd, (intptr_t)&message, message.size, 0, (intptr_t)&kernel, sizeof kernel);
  if (result >= 0) result = linux_call(SYS_RECVFROM, fd, (intptr_t)answer, sizeof answer, 0, 0, 0);
  linux_call(SYS_CLOSE, fd, 0, 0, 0, 0, 0);
  return result < 0 ? (int)result : *(int *)(answer + 16);
}

static const char *value_of(int count, char **words, const char *name) {
  size_t length = strlen(name);
  for (int i = 0; i < count; i++)
    if (strncmp(words[i], name, length) == 0 && words[i][length] == '=') return words[i] + length + 1;
  return "";
}

static int refuse(const char *text) {
  printf("%s\r\n\r\n", text);
  return 1;
}

static int run(int count, char **words) {
  uint8_t address[16];
  char text[64];
  if (count < 5 || strcmp(words[0], "interface") != 0 || strcmp(words[3], "address") != 0) return refuse("The following command was not found.");
  int is_v6 = strcmp(words[1], "ipv6") == 0, is_add = strcmp(words[2], "add") == 0;
  strncpy(text, value_of(count, words, "address"), sizeof text - 1);
  text[sizeof text - 1] = 0;
  if (is_v6) text[strcspn(text, "/")] = 0;
  if (inet_pton(is_v6 ? AF_INET6 : AF_INET, text, address) != 1) return refuse("Invalid address parameter.");
  int index = interface_index(value_of(count, words, is_v6 ? "interface" : "name"));
  int result = index < 0 ? index
    : change_address(is_add ? RTM_NEWADDR : RTM_DELADDR, is_v6 ? LINUX_AF_INET6 : LINUX_AF_INET, is_v6 ? 16 : 4, address, index);
  switch (-result) {
    case 0: return 0;
    case LINUX_ENODEV: return refuse("The filename, directory name, or volume label syntax is incorrect.");
    case LINUX_EEXIST: return refuse("The object already exists.");
    case LINUX_EADDRNOTAVAIL: return refuse("Element not found.");
    default: printf("Linux says %d.\r\n", -result); return 1;
  }
}

/* Words separated by spaces; spaces within quotes belong to a word. */
static int split(char *line, char **words, int most) {
  int count = 0, quoted = 0, inside = 0;
  char *to = line;
  for (char *at = line;; at++) {
    int is_end = *at == 0 || *at == '\r' || *at == '\n';
    if (is_end || (*at == ' ' && !quoted)) {
      if (inside) *to++ = 0;
      inside = 0;
      if (is_end) return count;
    } else if (*at == '"') quoted = !quoted;
    else {
      if (!inside && count < most) words[count++] = to;
      inside = 1;
      *to++ = *at;
    }
  }
}

int main(int count, char **words) {
  WSADATA data;
  WSAStartup(MAKEWORD(2, 2), &data);
  if (count != 3 || strcmp(words[1], "-f") != 0) return run(count - 1, words + 1);
  FILE *script = fopen(words[2], "rb");
  if (script == NULL) return refuse("The system cannot find the file specified.");
  char line[1024], *parts[16];
  while (fgets(line, sizeof line, script) != NULL) {
    int found = split(line, parts, 16);
    if (found > 0) run(found, parts);
  }
  fclose(script);
  return 0;
}
