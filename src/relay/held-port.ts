/**
 * A port that is reserved but not served. The socket is only bound: for TCP that keeps other programs from listening, and
 * the kernel refuses connections (reference userspace.md §1.4: with a listening socket they would hang).
 */
import { closeSync } from "node:fs";
import { errnoName } from "../kernel/netlink/errors.ts";
import { type Libc, libc, reliableErrno } from "../kernel/netlink/libc.ts";
import { ADDRESS_FAMILIES, socketAddress } from "../kernel/socket-address.ts";
import { familyOf } from "../net/ip.ts";
import { type DescriptorBudget, takeForListening } from "./descriptor-budget.ts";
import { type ListenFacts, listenError } from "./listen-error.ts";

const SOCK = { TCP: 1, UDP: 2 };
const SOCK_CLOEXEC = 0o2000000;
const SOL_SOCKET = 1;
const SO_REUSEADDR = 2;
const SO_RCVBUF = 8;
const IPPROTO_IPV6 = 41;
const IPV6_V6ONLY = 26;

/** Reserves a port until disposed. Throws `ListenError`. */
export function holdPort(facts: ListenFacts, budget: DescriptorBudget): AsyncDisposable {
  takeForListening(budget, facts);
  let fd: number | undefined;
  try {
    fd = bindTo(facts);
  } finally {
    if (fd === undefined) budget.giveBack(1);
  }
  return {
    async [Symbol.asyncDispose]() {
      if (fd === undefined) return;
      closeSync(fd);
      fd = undefined;
      budget.giveBack(1);
    },
  };
}

function bindTo(facts: ListenFacts): number {
  const calls = libc();
  const family = familyOf(facts.address);
  const open = (): number => calls.socket(ADDRESS_FAMILIES[family], SOCK[facts.protocol] | SOCK_CLOEXEC, 0);
  const fd = open();
  if (fd < 0) throw failure(calls, open, facts);
  try {
    if (family === "IPv6") setOption(calls, fd, IPPROTO_IPV6, IPV6_V6ONLY, 1);
    // Set only while binding: remains of old connections do not block the port, and still no other socket can share it.
    if (facts.protocol === "TCP") setOption(calls, fd, SOL_SOCKET, SO_REUSEADDR, 1);
    else setOption(calls, fd, SOL_SOCKET, SO_RCVBUF, 0); // as small as the kernel allows: nothing is read
    const address = socketAddress(facts);
    const bind = (): number => calls.bind(fd, address, address.length);
    if (bind() < 0) throw failure(calls, bind, facts);
    if (facts.protocol === "TCP") setOption(calls, fd, SOL_SOCKET, SO_REUSEADDR, 0);
  } catch (error) {
    closeSync(fd);
    throw error;
  }
  return fd;
}

function failure(calls: Libc, call: () => number, facts: ListenFacts): Error {
  const errno = errnoName(reliableErrno(calls, call));
  return listenError(errno, facts, new Error(errno));
}

function setOption(calls: Libc, fd: number, level: number, option: number, value: number): void {
  const bytes = Buffer.from(new Int32Array([value]).buffer);
  if (calls.setsockopt(fd, level, option, bytes, bytes.length) < 0) throw new Error(`setsockopt(${level}, ${option})`);
}
