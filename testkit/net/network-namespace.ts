/** Network namespaces: create them, run programs in them, remove them with everything that runs in them. */
import { type ChildProcess, execFileSync, type SpawnOptions, spawn } from "node:child_process";
import { readdirSync, readFileSync, readlinkSync, statSync, writeFileSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { inNetworkNamespace } from "../../src/kernel/network-namespace.ts";
import { type CommandOptions, type CommandResult, runCommand } from "./run-command.ts";
import { isLeftover } from "./run-name.ts";
import "../needs/kernel-tools.ts";

const NAMESPACE_FOLDER = "/run/netns";
const CREATION_LIMIT_MS = 120_000;

/** The file that stands for the namespace with this name. */
export const namespacePath = (name: string): string => `${NAMESPACE_FOLDER}/${name}`;
const batchOf = (lines: readonly string[]) => `${lines.join("\n")}\n`;

/** A handle; the kernel's namespace exists from {@link NetworkNamespace.create} to {@link NetworkNamespace.remove}. */
export class NetworkNamespace {
  /** As `ip netns list` shows it. */
  readonly name: string;
  /** What must end before the namespace goes: threads, which no process list shows. */
  readonly #inhabitants = new Set<() => Promise<void>>();

  private constructor(name: string) {
    this.name = name;
  }

  /** Creates the namespace with its loopback up. Rejects with CommandError. */
  static async create(name: string): Promise<NetworkNamespace> {
    const [namespace] = await NetworkNamespace.createAll([name]);
    if (namespace === undefined) throw new TypeError(`no namespace ${name}`);
    await namespace.configure(["link set lo up"]);
    return namespace;
  }

  /** Creates several, in the order of the names, with nothing up yet. Rejects with CommandError. */
  static async createAll(names: readonly string[]): Promise<NetworkNamespace[]> {
    const input = batchOf(names.map((name) => `netns add ${name}`));
    // The kernel creates no namespace while it tears down a large one, perhaps another program's on this machine.
    await runCommand(["ip", "-batch", "-"], { input, timeoutMs: CREATION_LIMIT_MS });
    return names.map((name) => new NetworkNamespace(name));
  }

  /** Ends every thread and process in them and removes them; never rejects for what is already gone. */
  static async removeAll(namespaces: readonly NetworkNamespace[]): Promise<void> {
    await Promise.all(namespaces.map((namespace) => namespace.#endInhabitants()));
    const names = namespaces.map(({ name }) => name);
    for (let round = 0; round < 3; round++) {
      const pids = processesIn(names);
      if (pids.length === 0) break;
      killAll(pids);
      await sleep(10);
    }
    await runCommand(["ip", "-force", "-batch", "-"], { input: deletionOf(names), allowFailure: true });
  }

  /** The file that stands for the namespace. */
  get path(): string {
    return namespacePath(this.name);
  }

  /** Registers what ends a thread inside; called before the namespace goes. @returns a function that unregisters it. */
  onRemove(end: () => Promise<void>): () => void {
    this.#inhabitants.add(end);
    return () => void this.#inhabitants.delete(end);
  }

  /** Runs `ip` lines inside, in order, as one batch; stops at the first failure and rejects with its text. */
  async configure(lines: readonly string[]): Promise<void> {
    await runCommand(["ip", "-n", this.name, "-batch", "-"], { input: batchOf(lines) });
  }

  /** Sets sysctls inside; keys in dotted form. Skips keys that the kernel does not have. */
  sysctl(settings: Readonly<Record<string, string | number>>): void {
    inNetworkNamespace(this.path, () => {
      for (const [key, value] of Object.entries(settings)) writeSysctl(key, String(value));
    });
  }

  /** The value of a sysctl inside, without its line end; the key in dotted form. @throws Error if the kernel does not have it. */
  readSysctl(key: string): string {
    return inNetworkNamespace(this.path, () => readFileSync(sysctlPath(key), "utf8")).trimEnd();
  }

  /**
   * A file of `/proc/net` in this namespace (`ip_vs`). For tests that poll: a program takes a hundred times as long.
   *
   * @throws Error if the kernel does not have it.
   */
  readProcNet(name: string): string {
    // /proc/net shows the main thread's namespace, wherever this thread is.
    return inNetworkNamespace(this.path, () => readFileSync(`/proc/thread-self/net/${name}`, "utf8"));
  }

  /** Runs a program inside to its end. */
  exec(argv: readonly [string, ...string[]], options: CommandOptions = {}): Promise<CommandResult> {
    return inNetworkNamespace(this.path, () => runCommand(argv, options));
  }

  /**
   * Starts a program inside and leaves it running. A child starts in the namespace of the thread that creates it, which
   * costs less than `ip netns exec`: another program, and mounts of its own.
   */
  spawn([file, ...args]: readonly [string, ...string[]], options: SpawnOptions = {}): ChildProcess {
    return inNetworkNamespace(this.path, () => spawn(file, args, options));
  }

  /** {@link NetworkNamespace.removeAll} for this one. Safe to call twice. */
  remove(): Promise<void> {
    return NetworkNamespace.removeAll([this]);
  }

  async #endInhabitants(): Promise<void> {
    await Promise.all([...this.#inhabitants].map((end) => end()));
    this.#inhabitants.clear();
  }
}

const sysctlPath = (key: string) => `/proc/sys/${key.replaceAll(".", "/")}`;

function writeSysctl(key: string, value: string): void {
  try {
    writeFileSync(sysctlPath(key), value);
  } catch (error) {
    const isUnknown = error instanceof Error && "code" in error && error.code === "ENOENT";
    if (!isUnknown) throw error;
  }
}

const deletionOf = (names: readonly string[]) => batchOf(names.map((name) => `netns del ${name}`));

/** The target of a link like `/proc/1/ns/net` for the namespace with this name; undefined if there is none. */
function identityOf(name: string): string | undefined {
  const status = statSync(namespacePath(name), { throwIfNoEntry: false });
  return status && `net:[${status.ino}]`;
}

/** The processes in these namespaces, except this one. */
function processesIn(names: readonly string[]): number[] {
  const identities = new Set(names.map(identityOf));
  const pids = readdirSync("/proc").map(Number);
  return pids.filter((pid) => pid > 1 && pid !== process.pid && livesIn(pid, identities));
}

/** Requires all of its threads: a daemon of another test visits namespaces with one, to look at their sockets. */
function livesIn(pid: number, identities: ReadonlySet<string | undefined>): boolean {
  if (!identities.has(namespaceAt(`/proc/${pid}`))) return false;
  const threads = threadsOf(pid).map((thread) => namespaceAt(`/proc/${pid}/task/${thread}`));
  return threads.every((namespace) => namespace === "" || identities.has(namespace));
}

function threadsOf(pid: number): readonly string[] {
  try {
    return readdirSync(`/proc/${pid}/task`);
  } catch {
    return [];
  }
}

function namespaceAt(process: string): string {
  try {
    return readlinkSync(`${process}/ns/net`);
  } catch {
    // It has ended, or is a kernel thread.
    return "";
  }
}

function killAll(pids: readonly number[]): void {
  for (const pid of pids) {
    try {
      process.kill(pid, "SIGKILL");
    } catch {
      // It ended by itself between the listing and the signal.
    }
  }
}

/** Like {@link NetworkNamespace.removeAll}, for an `exit` handler, where nothing asynchronous runs any more. */
export function removeNamespacesNow(names: readonly string[]): void {
  if (names.length === 0) return;
  try {
    killAll(processesIn(names));
    execFileSync("ip", ["-force", "-batch", "-"], { input: deletionOf(names), stdio: ["pipe", "ignore", "ignore"] });
  } catch {
    // Already gone; an exit handler has no one to tell.
  }
}

/** Removes the namespaces (and their processes) of runs whose process is dead. @returns the names removed. */
export function removeLeftoverNamespaces(): string[] {
  let names: string[];
  try {
    names = readdirSync(NAMESPACE_FOLDER);
  } catch {
    return [];
  }
  const leftovers = names.filter((name) => isLeftover(name));
  removeNamespacesNow(leftovers);
  return leftovers;
}
