/** The lists of iptables' `-m recent` in this node's kernel, which hold the clients of session affinity. */
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { parseIpAddress } from "../net/ip.ts";
import type { ListedClients } from "../trace/iptables/surroundings.ts";

const ENTRY = /^src=(\S+) .*?\blast_seen: (\d+)/gm;
/** Ticks begin at 2^32, less 300 seconds of them (include/linux/jiffies.h, INITIAL_JIFFIES). */
const FIRST_WRAP = 2 ** 32;
const BEFORE_WRAP_SECONDS = 300;
/** What kernels are built with (kernel/Kconfig.hz). */
const TICK_RATES = [100, 250, 300, 1000];

/** The kernel's clock in ticks, and how many of them are a second. */
interface Ticks {
  readonly now: number;
  readonly rate: number;
}

/** Reads the lists. @param proc where procfs is. @returns undefined when the kernel has none. */
export async function recentLists(proc = "/proc"): Promise<ListedClients | undefined> {
  const folder = join(proc, "net/xt_recent");
  const names = await readdir(folder).catch(() => undefined);
  if (names === undefined) return undefined;
  const ticks = ticksOf(await textOf(join(proc, "timer_list")));
  const lists = new Map<string, ReadonlyMap<string, number | undefined>>();
  for (const name of names) lists.set(name, clientsOf(await textOf(join(folder, name)), ticks));
  return lists;
}

/** A list may go, and a file may be of another user: then nothing is known. */
async function textOf(file: string): Promise<string> {
  return await readFile(file, "utf8").catch(() => "");
}

function clientsOf(text: string, ticks: Ticks | undefined): ReadonlyMap<string, number | undefined> {
  const clients = new Map<string, number | undefined>();
  for (const [, address = "", seen = ""] of text.matchAll(ENTRY)) {
    const age = ticks === undefined ? undefined : Math.max(0, (ticks.now - Number(seen)) / ticks.rate);
    clients.set(parseIpAddress(address) ?? address, age);
  }
  return clients;
}

/** @param timers what /proc/timer_list has. */
function ticksOf(timers: string): Ticks | undefined {
  const nanoseconds = Number(/^now at (\d+) nsecs/m.exec(timers)?.[1]);
  const last = [...timers.matchAll(/last_jiffies\s*: (\d+)/g)].map(([, ticks]) => Number(ticks));
  const now = Math.max(...last);
  const measured = (now - FIRST_WRAP) / (nanoseconds / 1e9 - BEFORE_WRAP_SECONDS);
  const rate = TICK_RATES.find((known) => Math.abs(measured / known - 1) < 0.05);
  return rate === undefined ? undefined : { now, rate };
}
