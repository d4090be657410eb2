/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Runs when a socket of this node connects, sends, receives, is bound or is closed: replaces the address of a Service by that of one of
 * its endpoints before the route lookup. Everything else passes unchanged and is left to the packet path (docs/reference: ebpf.md 1,
 * ebpf-operation.md 5).
 *
 * scripts/bpf.mjs compiles it once for each IP family (-DFAMILY=4, -DFAMILY=6). Maps and constants are undefined symbols that the loader
 * (elf.ts) fills in, so that the verifier sees constants and drops the code that they exclude. With -DTEST, words after the context
 * describe the socket, and the kernel lets tests run the program.
 */
typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long long u64;
typedef long long s64;

#define SEC(name) __attribute__((section(name), used))
#define INLINE static inline __attribute__((always_inline))
#define HELPER static __attribute__((unused))
#define READ_ONCE(what) (*(const volatile __typeof__(what) *)&(what))
#define WRITE_ONCE(what, value) (*(volatile __typeof__(what) *)&(what) = (value))
/* Kernels before 6.8 do not track a counter on the stack and consider such a loop infinite. */
#define UNROLLED _Pragma("unroll")
/* Compilers leave padding uninitialized, but the kernel compares it in keys. */
#define ZEROED(type, name) \
	type name; \
	__builtin_memset(&name, 0, sizeof(name))

/* The kernel's contexts (include/uapi/linux/bpf.h). Addresses and ports are in network byte order, except src_port. */
struct bpf_sock {
	u32 bound_dev_if, family, type, protocol, mark, priority;
	u32 src_ip4, src_ip6[4], src_port;
	u16 dst_port, pad;
	u32 dst_ip4, dst_ip6[4];
};
struct bpf_sock_addr {
	u32 user_family, user_ip4, user_ip6[4];
	/* Written as a whole word whose upper half is 0. */
	u32 user_port;
	u32 family, type, protocol, msg_src_ip4, msg_src_ip6[4];
	struct bpf_sock *sk __attribute__((aligned(8)));
};

HELPER void *(*const map_lookup)(const void *map, const void *key) = (void *)1;
HELPER long (*const map_update)(const void *map, const void *key, const void *value, u64 flags) = (void *)2;
HELPER long (*const map_delete)(const void *map, const void *key) = (void *)3;
HELPER u64 (*const ktime_get_ns)(void) = (void *)5;
HELPER u32 (*const get_prandom_u32)(void) = (void *)7;
HELPER u64 (*const get_socket_cookie)(void *ctx) = (void *)46;
HELPER u64 (*const get_current_cgroup_id)(void) = (void *)80;
HELPER u64 (*const get_netns_cookie)(void *ctx) = (void *)122;
HELPER long (*const set_retval)(int value) = (void *)187;

#define BPF_ANY 0
#define BPF_NOEXIST 1

#define TCP 6
#define UDP 17
#define ECONNREFUSED 111
#define EADDRINUSE 98
#define NS_PER_SECOND 1000000000ULL
/* How long after its last datagram a socket's flow keeps its backend: as long as conntrack would. */
#define FLOW_NS (120 * (s64)NS_PER_SECOND)
/* The third word of ::ffff:a.b.c.d. */
#define MAPPED_WORD 0xffff0000

/* Flags of a frontend. Unknown ones leave the connection to the packet path. */
#define NO_ENDPOINTS 1
#define HOST_ONLY 2
/* In the id of a backend that is no longer offered. */
#define HELD (1U << 31)
/* How many frontends one UDP socket can use at the same time. */
#define FLOWS_OF_SOCKET 4

#if FAMILY == 6
#define WORDS 4
#else
#define WORDS 1
#endif

/* Keys and values of the maps; maps.ts has them for the process that fills them. */
struct address {
	u32 words[WORDS];
};
struct frontend_key {
	struct address address;
	u16 port;
	u8 protocol, pad;
};
struct frontend {
	/* Base in the lower half, count in the upper. */
	u64 extent;
	/* Id in the lower half, flags in the upper. */
	u64 identity;
	u32 affinity_seconds, held;
};
struct slot {
	u32 backend, pad;
};
/* A backend as a socket sees it. */
struct place {
	struct address address;
	u16 port, pad;
#if FAMILY == 6
	u32 pad6;
#endif
};
struct backend {
	struct place place;
	/* Id in the lower half, number of writes in the upper. */
	u64 identity;
};
struct client_key {
	u64 netns;
	u32 id, pad;
};
struct choice {
	u32 backend, pad;
	u64 last_used;
};
struct flow_key {
	u64 cookie;
	u32 number, pad;
};
struct flow {
	u32 backend;
	/* 0: there is no former endpoint. */
	u16 former_port, pad;
	u64 last_used;
	/* The socket's network namespace. */
	u64 netns;
	struct address address;
	u16 port, dialled_port;
	struct address dialled;
	/* Before the last move: its answers may still lie in the socket's buffer. */
	struct address former;
#if FAMILY == 6
	u32 pad6;
#endif
};
struct tcp_peer {
	struct place place;
	struct address dialled;
	u32 dialled_port;
};
struct count_key {
	struct frontend_key dialled;
	struct place place;
};
struct connected {
	u64 netns, identity;
	struct address address;
	u16 port, pad;
	u32 backend;
#if FAMILY == 4
	u32 pad4;
#endif
};

extern const char frontends[], slots[], backends[], node_addrs[], valid_until[], clients[], flows[], tcp_peers[], connected[],
	led_netns[], other_netns[], counts[];

#define CONSTANT(name) \
	({ \
		u64 constant; \
		asm("%0 = " #name " ll" : "=r"(constant)); \
		constant; \
	})
/* Cookie of the host's network namespace. */
#define HOST_COOKIE CONSTANT(host_cookie)
/* Connected UDP sockets can be told when their backend goes, and so are redirected. */
#define LEADS_CONNECTED_UDP CONSTANT(leads_connected_udp)
/* The kernel has bpf_set_retval. */
#define CAN_SET_RETVAL CONSTANT(can_set_retval)
/* The host can reach node ports without the Local policy at localhost. */
#define LEADS_LOCALHOST CONSTANT(leads_localhost)
/* Maximum number of flows of one network namespace. */
#define FLOWS_OF_NETNS CONSTANT(flows_of_netns)
/* Connection counts: 0 none, 1 by destination, 2 by destination and backend. */
#define COUNTED CONSTANT(counted)

#ifdef TEST
struct test_words {
	u64 socket_cookie, netns_cookie;
	u32 return_value, is_bound;
};
#define TEST_WORDS(ctx) ((struct test_words *)((char *)(ctx) + 72))
#define SOCKET_COOKIE(ctx) (TEST_WORDS(ctx)->socket_cookie)
#define NETNS_COOKIE(ctx) (TEST_WORDS(ctx)->netns_cookie)
#define SET_RETVAL(ctx, value) (TEST_WORDS(ctx)->return_value = (value))
#define IS_BOUND_TO_LOOPBACK(ctx) (TEST_WORDS(ctx)->is_bound != 0)
#define HAS_CONNECTED(ctx) 1
#define CGROUP_ID() 7
#else
#define SOCKET_COOKIE(ctx) get_socket_cookie(ctx)
#define NETNS_COOKIE(ctx) get_netns_cookie(ctx)
#define SET_RETVAL(ctx, value) set_retval(value)
#define IS_BOUND_TO_LOOPBACK(ctx) is_bound_to_loopback(ctx)
#define HAS_CONNECTED(ctx) has_connected(ctx)
#define CGROUP_ID() get_current_cgroup_id()
#endif

enum call { CONNECT, SENDMSG, RECVMSG, GETPEERNAME };
enum outcome { PASS, LED, REFUSED };

INLINE int is_mapped(const struct bpf_sock_addr *ctx)
{
	return READ_ONCE(ctx->user_ip6[0]) == 0 && READ_ONCE(ctx->user_ip6[1]) == 0 && READ_ONCE(ctx->user_ip6[2]) == MAPPED_WORD;
}

/* mapped: for an IPv6 socket with an address ::ffff:a.b.c.d. */
INLINE void read_address(const struct bpf_sock_addr *ctx, int mapped, struct address *to)
{
#if FAMILY == 6
	(void)mapped;
	to->words[0] = READ_ONCE(ctx->user_ip6[0]);
	to->words[1] = READ_ONCE(ctx->user_ip6[1]);
	to->words[2] = READ_ONCE(ctx->user_ip6[2]);
	to->words[3] = READ_ONCE(ctx->user_ip6[3]);
#else
	to->words[0] = mapped ? READ_ONCE(ctx->user_ip6[3]) : READ_ONCE(ctx->user_ip4);
#endif
}

INLINE void write_place(struct bpf_sock_addr *ctx, int mapped, const struct address *address, u16 port)
{
#if FAMILY == 6
	(void)mapped;
	WRITE_ONCE(ctx->user_ip6[0], address->words[0]);
	WRITE_ONCE(ctx->user_ip6[1], address->words[1]);
	WRITE_ONCE(ctx->user_ip6[2], address->words[2]);
	WRITE_ONCE(ctx->user_ip6[3], address->words[3]);
#else
	if (mapped)
		WRITE_ONCE(ctx->user_ip6[3], address->words[0]);
	else
		WRITE_ONCE(ctx->user_ip4, address->words[0]);
#endif
	WRITE_ONCE(ctx->user_port, (u32)port);
}

INLINE int is_same(const struct address *one, const struct address *other)
{
#if FAMILY == 6
	return one->words[0] == other->words[0] && one->words[1] == other->words[1] && one->words[2] == other->words[2] &&
	       one->words[3] == other->words[3];
#else
	return one->words[0] == other->words[0];
#endif
}

INLINE int is_unspecified(const struct address *address)
{
#if FAMILY == 6
	return (address->words[0] | address->words[1] | address->words[2] | address->words[3]) == 0;
#else
	return address->words[0] == 0;
#endif
}

/* 127.0.0.1 or ::1. */
INLINE int is_localhost(const struct address *address)
{
#if FAMILY == 6
	return (address->words[0] | address->words[1] | address->words[2]) == 0 && address->words[3] == 0x01000000;
#else
	return address->words[0] == 0x0100007f;
#endif
}

#ifndef TEST
/* Whether the socket can only reach this machine: its source is a loopback address, or it is bound to a device. */
INLINE int is_bound_to_loopback(const struct bpf_sock_addr *ctx)
{
	const struct bpf_sock *sk = ctx->sk;
	if (!sk)
		return 1;
#if FAMILY == 6
	if (sk->src_ip6[0] == 0 && sk->src_ip6[1] == 0 && sk->src_ip6[2] == 0 && sk->src_ip6[3] == 0x01000000)
		return 1;
#else
	if ((sk->src_ip4 & 0xff) == 127)
		return 1;
#endif
	return sk->bound_dev_if != 0;
}

/* Whether a TCP socket has connected before: disconnecting keeps the address. Costs bystanders less than looking up the cookie. */
INLINE int has_connected(const struct bpf_sock_addr *ctx)
{
	const struct bpf_sock *sk = ctx->sk;
	if (!sk)
		return 1;
#if FAMILY == 6
	return (sk->dst_ip6[0] | sk->dst_ip6[1] | sk->dst_ip6[2] | sk->dst_ip6[3]) != 0;
#else
	return sk->dst_ip4 != 0;
#endif
}
#endif

/* Whether the maps are being kept up to date. */
INLINE int are_valid(u64 now)
{
	u32 first = 0;
	u64 *until = map_lookup(valid_until, &first);
	return until && now <= *until;
}

/*
 * A backend with another id meanwhile belongs to another service port. Reads its identity before and after the place: because a writer
 * clears the identity first and sets the new one last, the place belongs to the identity if both reads are equal.
 * ignored: bits of the id that need not match the frontend's list.
 */
INLINE int take_backend(u32 index, u32 id, u32 ignored, struct place *place, u64 *identity)
{
	struct backend *backend = map_lookup(backends, &index);
	if (!backend)
		return 0;
	u64 before = READ_ONCE(backend->identity);
	*place = *(volatile struct place *)&backend->place;
	*identity = READ_ONCE(backend->identity);
	return *identity == before && (((u32)before ^ id) & ~ignored) == 0;
}

/* at_localhost: set to 1 for a node port at localhost. */
INLINE struct frontend *find_frontend(struct bpf_sock_addr *ctx, enum call call, struct frontend_key *dialled, int *at_localhost)
{
	struct frontend *found;
	/* To the client, the unspecified address is its own machine; in the map, it stands for a node port. */
	if (is_unspecified(&dialled->address))
		return 0;
	found = map_lookup(frontends, dialled);
	/* A datagram to a node port may answer a client that has this source port: conntrack can tell, a socket cannot. */
	if (found || call != CONNECT || dialled->protocol == UDP)
		return found;
	if (is_localhost(&dialled->address)) {
		/* A pod's localhost is its own. */
		if (!LEADS_LOCALHOST || NETNS_COOKIE(ctx) != HOST_COOKIE || IS_BOUND_TO_LOOPBACK(ctx))
			return 0;
		*at_localhost = 1;
	} else if (!map_lookup(node_addrs, &dialled->address)) {
		return 0;
	}
	ZEROED(struct frontend_key, node_port);
	node_port.port = dialled->port;
	node_port.protocol = dialled->protocol;
	return map_lookup(frontends, &node_port);
}

/* A UDP socket's flow to this destination. */
INLINE struct flow *find_flow(struct flow_key *key, const struct frontend_key *dialled)
{
	UNROLLED
	for (u32 number = 0; number < FLOWS_OF_SOCKET; number++) {
		key->number = number;
		struct flow *flow = map_lookup(flows, key);
		if (!flow)
			return 0;
		if (is_same(&flow->dialled, &dialled->address) && flow->dialled_port == dialled->port)
			return flow;
	}
	return 0;
}

/* Whether the socket could not tell this backend's answers from another frontend's that it uses at the same time. */
INLINE int is_taken(struct flow_key *key, const struct place *place, const struct frontend_key *dialled, u64 now)
{
	UNROLLED
	for (u32 number = 0; number < FLOWS_OF_SOCKET; number++) {
		key->number = number;
		struct flow *flow = map_lookup(flows, key);
		if (!flow)
			return 0;
		if (is_same(&flow->address, &place->address) && flow->port == place->port &&
		    (!is_same(&flow->dialled, &dialled->address) || flow->dialled_port != dialled->port) &&
		    (s64)(now - flow->last_used) <= FLOW_NS)
			return 1;
	}
	return 0;
}

/*
 * The flow count of a network namespace; null for the host's, which may use all the room and is not counted, and for one that is not
 * redirected any more.
 */
INLINE s64 *find_count(u64 netns)
{
	return netns == HOST_COOKIE ? 0 : map_lookup(led_netns, &netns);
}

/* Whether sockets of this network namespace are redirected: the host's, and those of its pods. Reports others to the process, once. */
INLINE int is_led(u64 netns)
{
	u64 cgroup;
	if (netns == HOST_COOKIE || map_lookup(led_netns, &netns))
		return 1;
	if (!map_lookup(other_netns, &netns)) {
		cgroup = CGROUP_ID();
		map_update(other_netns, &netns, &cgroup, BPF_NOEXIST);
	}
	return 0;
}

/* Processors that do this at the same time may exceed the limit by one flow each. */
INLINE int add_flow(const struct flow_key *key, const struct flow *value)
{
	s64 *count = find_count(value->netns);
	if (count && READ_ONCE(*count) >= (s64)FLOWS_OF_NETNS)
		return 0;
	/* Another thread may be using the number for another destination. */
	if (map_update(flows, key, value, BPF_NOEXIST))
		return 0;
	/* Does not use the result: on arm64, that instruction requires Linux 5.18. */
	if (count)
		__sync_fetch_and_add(count, 1);
	return 1;
}

/* Overwrites the flow to the same destination; else uses a free number, or one whose flow can get no more answers. */
INLINE int write_flow(struct flow_key *key, struct flow *value)
{
	UNROLLED
	for (u32 number = 0; number < FLOWS_OF_SOCKET; number++) {
		key->number = number;
		struct flow *flow = map_lookup(flows, key);
		if (!flow)
			return add_flow(key, value);
		if (is_same(&flow->dialled, &value->dialled) && flow->dialled_port == value->dialled_port) {
			int has_moved = !is_same(&flow->address, &value->address) || flow->port != value->port;
			if (has_moved || flow->backend != value->backend) {
				value->former = has_moved ? flow->address : flow->former;
				value->former_port = has_moved ? flow->port : flow->former_port;
				return map_update(flows, key, value, BPF_ANY) == 0;
			}
			/* Only this word differs: write it in place. */
			flow->last_used = value->last_used;
			return 1;
		}
		if ((s64)(value->last_used - flow->last_used) > FLOW_NS)
			return map_update(flows, key, value, BPF_ANY) == 0;
	}
	return 0;
}

/* Records the destination that a TCP socket used, until it is closed. Never leaves the record of an earlier connect. */
INLINE void write_tcp_peer(u64 cookie, const struct place *place, const struct frontend_key *dialled)
{
	ZEROED(struct tcp_peer, peer);
	peer.place = *place;
	peer.dialled = dialled->address;
	peer.dialled_port = dialled->port;
	if (map_update(tcp_peers, &cookie, &peer, BPF_ANY))
		map_delete(tcp_peers, &cookie);
}

/*
 * No program sees what a connected UDP socket sends, so it must be told when its backend goes: without a record it is not redirected.
 * Checks the backend again after writing the record: because the backend's writer first clears the identity and then reads the records,
 * either the writer finds this record or the check fails.
 */
INLINE int register_connected(u64 netns, u64 cookie, u32 index, const struct place *place, u64 identity)
{
	struct backend *backend;
	ZEROED(struct connected, record);
	record.netns = netns;
	record.identity = identity;
	record.address = place->address;
	record.port = place->port;
	record.backend = index;
	if (map_update(connected, &cookie, &record, BPF_ANY))
		return 0;
	backend = map_lookup(backends, &index);
	return backend && READ_ONCE(backend->identity) == identity;
}

/* Counts a connection redirected to a place; without one, a rejected connection. Two processors may create a count at the same time. */
INLINE void count_connection(const struct frontend_key *dialled, const struct place *place)
{
	ZEROED(struct count_key, key);
	u64 none = 0, *count;
	key.dialled = *dialled;
	key.dialled.pad = !place;
	if (place && COUNTED == 2)
		key.place = *place;
	count = map_lookup(counts, &key);
	if (!count) {
		map_update(counts, &key, &none, BPF_NOEXIST);
		count = map_lookup(counts, &key);
	}
	if (count)
		__sync_fetch_and_add(count, 1);
}

INLINE enum outcome try_to_lead(struct bpf_sock_addr *ctx, enum call call, int mapped, u32 protocol)
{
	struct frontend *frontend;
	struct slot *slot;
	struct place place;
	u64 extent, identity, cookie, now, of_backend, netns;
	u32 id, flags, seconds, index;
	int at_localhost = 0, is_new = 1;
	ZEROED(struct frontend_key, dialled);
	ZEROED(struct client_key, client);
	ZEROED(struct flow_key, flow_key);

	/* Ping and UDP-Lite sockets run the same hooks. */
	if (protocol != TCP && (protocol != UDP || (call == CONNECT && !LEADS_CONNECTED_UDP)))
		return PASS;
	if (mapped && !is_mapped(ctx))
		return PASS;
	read_address(ctx, mapped, &dialled.address);
	dialled.port = READ_ONCE(ctx->user_port);
	dialled.protocol = protocol;
	frontend = find_frontend(ctx, call, &dialled, &at_localhost);
	if (!frontend)
		return PASS;
	/* The map may reuse the element at any time. */
	extent = READ_ONCE(frontend->extent);
	identity = READ_ONCE(frontend->identity);
	seconds = READ_ONCE(frontend->affinity_seconds);
	now = ktime_get_ns();
	if (!are_valid(now))
		return PASS;
	netns = NETNS_COOKIE(ctx);
	if (!is_led(netns))
		return PASS;

	id = identity;
	flags = identity >> 32;
	/* The relay at localhost may obey the Local policy, and does not listen without endpoints. */
	if (at_localhost && flags != 0)
		return PASS;
	if (flags == NO_ENDPOINTS) {
		if (protocol != TCP || !CAN_SET_RETVAL)
			return PASS;
		if (COUNTED != 0)
			count_connection(&dialled, 0);
		return REFUSED;
	}
	if (flags != 0 && (flags != HOST_ONLY || netns != HOST_COOKIE))
		return PASS;

	cookie = SOCKET_COOKIE(ctx);
	flow_key.cookie = cookie;
	/* A sending socket keeps its backend for this destination while that serves, offered or not, from either list. */
	if (call == SENDMSG) {
		struct flow *flow = find_flow(&flow_key, &dialled);
		if (flow && (s64)(now - flow->last_used) <= FLOW_NS) {
			index = flow->backend;
			if (take_backend(index, id, HELD | 1, &place, &of_backend)) {
				is_new = 0;
				goto chosen;
			}
		}
	}
	/* A client with session affinity keeps its backend while that is offered. */
	if (seconds != 0) {
		struct choice *choice;
		client.netns = netns;
		client.id = id;
		choice = map_lookup(clients, &client);
		if (choice) {
			index = choice->backend;
			/* Signed: another processor may have written a later time since this one read the clock. */
			if ((s64)(now - choice->last_used) <= (s64)(seconds * NS_PER_SECOND) &&
			    take_backend(index, id, 0, &place, &of_backend))
				goto note_choice;
		}
	}
	if (extent >> 32 == 0)
		return PASS;
	index = (u32)extent + (u32)((get_prandom_u32() * (extent >> 32)) >> 32);
	slot = map_lookup(slots, &index);
	if (!slot)
		return PASS;
	index = READ_ONCE(slot->backend);
	if (!take_backend(index, id, 0, &place, &of_backend))
		return PASS;
note_choice:
	/* By the rules, connection tracking gives the second flow another source port. */
	if ((call == SENDMSG || protocol == UDP) && is_taken(&flow_key, &place, &dialled, now))
		return PASS;
	if (seconds != 0) {
		ZEROED(struct choice, choice);
		choice.backend = index;
		choice.last_used = now;
		map_update(clients, &client, &choice, BPF_ANY);
	}
chosen:
	if (call == CONNECT && protocol == TCP) {
		write_tcp_peer(cookie, &place, &dialled);
	} else {
		/* Without a record, the socket uses the rules, and nothing else is recorded. */
		if (call == CONNECT && !register_connected(netns, cookie, index, &place, of_backend))
			return PASS;
		ZEROED(struct flow, flow);
		flow.backend = index;
		flow.last_used = now;
		flow.netns = netns;
		flow.address = place.address;
		flow.port = place.port;
		flow.dialled_port = dialled.port;
		flow.dialled = dialled.address;
		if (!write_flow(&flow_key, &flow))
			return PASS;
	}
	if (COUNTED != 0 && is_new)
		count_connection(&dialled, &place);
	write_place(ctx, mapped, &place.address, place.port);
	return LED;
}

INLINE int lead(struct bpf_sock_addr *ctx, enum call call, int mapped)
{
	u32 protocol = READ_ONCE(ctx->protocol);
	enum outcome outcome = try_to_lead(ctx, call, mapped, protocol);
	if (outcome == REFUSED) {
		/* Otherwise the call fails with EPERM, which looks like a policy. */
		SET_RETVAL(ctx, -ECONNREFUSED);
		return 0;
	}
	/* A socket that was redirected earlier and now connects to something else must not count as redirected. */
	if (outcome == PASS && call == CONNECT && (protocol == UDP || (protocol == TCP && HAS_CONNECTED(ctx)))) {
		u64 cookie = SOCKET_COOKIE(ctx);
		if (protocol == UDP)
			map_delete(connected, &cookie);
		else
			map_delete(tcp_peers, &cookie);
	}
	return 1;
}

/* Shows a redirected socket's backend under the address that the socket used. */
INLINE int reveal(struct bpf_sock_addr *ctx, enum call call, int mapped)
{
	u32 protocol = READ_ONCE(ctx->protocol);
	ZEROED(struct place, place);
	u64 cookie;
	if (protocol != UDP && (call != GETPEERNAME || protocol != TCP))
		return 1;
	if (mapped && !is_mapped(ctx))
		return 1;
	cookie = SOCKET_COOKIE(ctx);
	read_address(ctx, mapped, &place.address);
	place.port = READ_ONCE(ctx->user_port);
	if (protocol == TCP) {
		struct tcp_peer *peer = map_lookup(tcp_peers, &cookie);
		if (peer && is_same(&peer->place.address, &place.address) && peer->place.port == place.port)
			write_place(ctx, mapped, &peer->dialled, peer->dialled_port);
		return 1;
	}
	/* Its flows stay recorded until it is closed, and it may since have connected to the same backend directly. */
	if (call == GETPEERNAME && !map_lookup(connected, &cookie))
		return 1;
	ZEROED(struct flow_key, key);
	key.cookie = cookie;
	UNROLLED
	for (u32 number = 0; number < FLOWS_OF_SOCKET; number++) {
		key.number = number;
		struct flow *flow = map_lookup(flows, &key);
		if (!flow)
			break;
		if (is_same(&flow->address, &place.address) && flow->port == place.port) {
			write_place(ctx, mapped, &flow->dialled, flow->dialled_port);
			return 1;
		}
	}
	if (call != RECVMSG)
		return 1;
	/* Only after all current endpoints: a former one of one Service may be a current one of another. */
	UNROLLED
	for (u32 number = 0; number < FLOWS_OF_SOCKET; number++) {
		key.number = number;
		struct flow *flow = map_lookup(flows, &key);
		if (!flow)
			return 1;
		if (flow->former_port == place.port && place.port != 0 && is_same(&flow->former, &place.address)) {
			write_place(ctx, mapped, &flow->dialled, flow->dialled_port);
			return 1;
		}
	}
	return 1;
}

/* Deletes the records of a socket that is closed. */
INLINE int release(struct bpf_sock *ctx)
{
	u32 protocol = ctx->protocol;
	s64 *count, change = -1;
	ZEROED(struct flow_key, key);
	if (protocol != UDP && protocol != TCP)
		return 1;
	key.cookie = SOCKET_COOKIE(ctx);
	if (protocol == TCP) {
		map_delete(tcp_peers, &key.cookie);
		return 1;
	}
	/* Numbers are consecutive. A socket without flows was never redirected. */
	if (map_delete(flows, &key))
		return 1;
	UNROLLED
	for (u32 number = 1; number < FLOWS_OF_SOCKET; number++) {
		key.number = number;
		if (map_delete(flows, &key))
			break;
		change--;
	}
	count = find_count(NETNS_COOKIE(ctx));
	if (count)
		__sync_fetch_and_add(count, change);
	map_delete(connected, &key.cookie);
	return 1;
}

/*
 * Runs after bind(): rejects sockets of the host's network that would take a served node port. Ignores sockets bound earlier, those of
 * pods, and loopback addresses. mapped: an IPv6 socket at ::, which also receives IPv4, or at ::ffff:a.b.c.d.
 */
INLINE int hold(struct bpf_sock *ctx, int mapped)
{
	u32 protocol = ctx->protocol;
	ZEROED(struct frontend_key, key);
	if ((protocol != TCP && protocol != UDP) || NETNS_COOKIE(ctx) != HOST_COOKIE)
		return 1;
	key.port = __builtin_bswap16(READ_ONCE(ctx->src_port));
	key.protocol = protocol;
	/* A key without an address stands for a node port. */
	if (!map_lookup(frontends, &key) || !are_valid(ktime_get_ns()))
		return 1;
#if FAMILY == 6
	(void)mapped;
	key.address.words[0] = READ_ONCE(ctx->src_ip6[0]);
	key.address.words[1] = READ_ONCE(ctx->src_ip6[1]);
	key.address.words[2] = READ_ONCE(ctx->src_ip6[2]);
	key.address.words[3] = READ_ONCE(ctx->src_ip6[3]);
#else
	if (mapped) {
		u32 third = READ_ONCE(ctx->src_ip6[2]);
		if (READ_ONCE(ctx->src_ip6[0]) != 0 || READ_ONCE(ctx->src_ip6[1]) != 0)
			return 1;
		key.address.words[0] = READ_ONCE(ctx->src_ip6[3]);
		if (third != MAPPED_WORD && (third != 0 || key.address.words[0] != 0))
			return 1;
	} else {
		key.address.words[0] = READ_ONCE(ctx->src_ip4);
	}
#endif
	if (!is_unspecified(&key.address) && !map_lookup(node_addrs, &key.address))
		return 1;
	if (CAN_SET_RETVAL)
		SET_RETVAL(ctx, -EADDRINUSE);
	return 0;
}

/* To the loader, each section is a program of that name. */
#define PROGRAM(name, context, body) \
	SEC("kpts_" #name) int name(struct context *ctx) { return body; }
#if FAMILY == 4
PROGRAM(connect4, bpf_sock_addr, lead(ctx, CONNECT, 0))
PROGRAM(connect4m, bpf_sock_addr, lead(ctx, CONNECT, 1))
PROGRAM(sendmsg4, bpf_sock_addr, lead(ctx, SENDMSG, 0))
PROGRAM(recvmsg4, bpf_sock_addr, reveal(ctx, RECVMSG, 0))
PROGRAM(recvmsg4m, bpf_sock_addr, reveal(ctx, RECVMSG, 1))
PROGRAM(peer4, bpf_sock_addr, reveal(ctx, GETPEERNAME, 0))
PROGRAM(peer4m, bpf_sock_addr, reveal(ctx, GETPEERNAME, 1))
PROGRAM(release4, bpf_sock, release(ctx))
PROGRAM(bind4, bpf_sock, hold(ctx, 0))
PROGRAM(bind4m, bpf_sock, hold(ctx, 1))
#else
PROGRAM(connect6, bpf_sock_addr, lead(ctx, CONNECT, 0))
PROGRAM(sendmsg6, bpf_sock_addr, lead(ctx, SENDMSG, 0))
PROGRAM(recvmsg6, bpf_sock_addr, reveal(ctx, RECVMSG, 0))
PROGRAM(peer6, bpf_sock_addr, reveal(ctx, GETPEERNAME, 0))
PROGRAM(release6, bpf_sock, release(ctx))
PROGRAM(bind6, bpf_sock, hold(ctx, 0))
#endif
