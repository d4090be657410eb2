/** Programs of others that packets or sockets of this node meet beside all rules: tcx, the node's cgroup, and netfilter's BPF links. */
import { closeSync, constants, openSync, readFileSync } from "node:fs";
import { attempt } from "../../logging/attempt.ts";
import type { HookEntry } from "../netfilter-hooks.ts";
import type { AtDevice } from "../route/devices.ts";
import { BpfError } from "./bpf-error.ts";
import { HOOKS } from "./hooks.ts";
import { idsAt, nameOfProgram, netfilterPrograms } from "./kernel-bpf.ts";
import { cgroup2Mounts, rootAmong } from "./places.ts";

/** Attach types by the name of the hook (include/uapi/linux/bpf.h). */
const AT_DEVICE = Object.entries({ ingress: 46, egress: 47 });
const { connect4, connect6, sendmsg4, sendmsg6 } = HOOKS;
const AT_CGROUP = [
  ...Object.entries({ ingress: 0, egress: 1 }),
  ...Object.entries({ connect4, connect6, sendmsg4, sendmsg6 }).map(([name, hook]) => [name, hook.attachType] as const),
];
/** Begins the names of this program's own. */
const OWN = "kpts_";
/** What a kernel answers without the call, such hooks or, meanwhile, the device: then nothing is there. */
const NOT_HERE = new Set(["ENOSYS", "EINVAL", "ENODEV"]);
/** So many of a kind are named, but for those at devices. */
const NAMED = 3;

/** What is asked of the kernel; everything throws BpfError. */
export interface ProgramQueries {
  /** @param target the index of a device, or the descriptor of a cgroup's folder. */
  readonly idsAt: (target: number, attachType: number) => readonly number[];
  readonly netfilterPrograms: () => readonly number[];
  readonly nameOfProgram: (id: number) => string | undefined;
}

/**
 * @param devices names by index. @param hooked what is at netfilter's hooks; undefined: this kernel does not list it.
 * @param cgroup the folder of the node's cgroup; undefined: it cannot be seen from here.
 * @returns each program, and what could not be asked
 */
export function foreignPrograms(
  devices: ReadonlyMap<number, string>,
  hooked?: readonly HookEntry[],
  cgroup = nodeCgroup(),
  queries: ProgramQueries = { idsAt, netfilterPrograms, nameOfProgram },
): readonly AtDevice[] {
  const at = (
    target: number,
    hooks: readonly (readonly [string, number])[],
    place: (hook: string) => string,
    device?: string,
  ): readonly Found[] =>
    hooks.flatMap(([hook, type]) => queries.idsAt(target, type).map((id) => ({ id, place: place(hook), device })));
  const found = [
    [...devices].flatMap(([index, name]) =>
      asked("tcx programs (needs NET_ADMIN)", () => at(index, AT_DEVICE, (hook) => `${name} ${hook} (tcx)`, name)),
    ),
    asked("programs of cgroups (needs NET_ADMIN)", () =>
      withFolder(cgroup, (fd) => at(fd, AT_CGROUP, (hook) => `the node's cgroup (${hook})`)),
    ),
    hooked?.flatMap(({ program: id, family, hook, priority }) =>
      id === undefined ? [] : { id, place: `the hook ${family} ${hook}, priority ${priority}` },
    ) ??
      asked("netfilter's BPF links (needs SYS_ADMIN)", () =>
        queries.netfilterPrograms().map((id) => ({ id, place: "a netfilter hook of this or another namespace" })),
      ),
  ];
  return found.flatMap((ofKind: readonly (Found | string)[]) => {
    const words = ofKind.flatMap((one): readonly AtDevice[] => {
      if (typeof one === "string") return [{ what: one }];
      // Null: it is gone. Undefined: names need SYS_ADMIN.
      const name = attempt(() => queries.nameOfProgram(one.id) ?? null);
      if (name === null || name?.startsWith(OWN) === true) return [];
      const what = `program ${one.id}${name ? ` (${name})` : ""} at ${one.place}: its content is not read`;
      return [{ what, device: one.device }];
    });
    const unique = [...new Map(words.map((one) => [one.what, one])).values()];
    return unique.filter(({ device }, at) => device !== undefined || at < NAMED);
  });
}

interface Found {
  readonly id: number;
  readonly place: string;
  readonly device?: string | undefined;
}

function asked<T>(what: string, ask: () => readonly T[]): readonly (T | string)[] {
  try {
    return ask();
  } catch (error) {
    if (!(error instanceof BpfError)) throw error;
    return NOT_HERE.has(error.code) ? [] : [`not read: ${what}: ${error.code}`];
  }
}

function withFolder<T>(path: string | undefined, work: (fd: number) => readonly T[]): readonly T[] {
  const fd = path === undefined ? undefined : attempt(() => openSync(path, constants.O_RDONLY | constants.O_DIRECTORY));
  if (fd === undefined) return [];
  try {
    return work(fd);
  } finally {
    closeSync(fd);
  }
}

/** As this process sees it, or the first one: `ip netns exec` hides the mounts below /sys. @returns undefined if neither does */
export function nodeCgroup(): string | undefined {
  const mounts = (process: "self" | 1) =>
    cgroup2Mounts(attempt(() => readFileSync(`/proc/${process}/mountinfo`, "utf8")) ?? "");
  return rootAmong([...mounts("self"), ...mounts(1).map((path) => `/proc/1/root${path}`)]);
}
