/** One network namespace: create, run programs in it, remove it with everything that runs in it. */
import {
  type ChildProcess,
  type ExecFileSyncOptionsWithStringEncoding,
  execFileSync,
  type SpawnOptions,
  spawn,
} from "node:child_process";
import { readdirSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { type CommandOptions, type CommandResult, runCommand } from "./run-command.ts";
import { isLeftover } from "./run-name.ts";

const NAMESPACE_FOLDER = "/run/netns";
const CREATION_LIMIT_MS = 120_000;

/** A handle; the kernel's namespace exists from {@link NetworkNamespace.create} to {@link NetworkNamespace.remove}. */
export class NetworkNamespace {
  /** As `ip netns list` shows it. */
  readonly name: string;
  /** What must end before the namespace goes: no process, so `ip netns pids` does not know it. */
  readonly #inhabitants = new Set<() => Promise<void>>();

  private constructor(name: string) {
    this.name = name;
  }

  /** The file that stands for the namespace. */
  get path(): string {
    return `${NAMESPACE_FOLDER}/${this.name}`;
  }

  /** Notes what ends a thread that lives inside; called before the namespace is removed. @returns forgets it. */
  onRemove(end: () => Promise<void>): () => void {
    this.#inhabitants.add(end);
    return () => void this.#inhabitants.delete(end);
  }

  /** Creates the namespace with its loopback up. Rejects with CommandError. */
  static async create(name: string): Promise<NetworkNamespace> {
    // The kernel makes no namespace while it takes down a large one, on this machine perhaps another program's.
    await runCommand(["ip", "netns", "add", name], { timeoutMs: CREATION_LIMIT_MS });
    const namespace = new NetworkNamespace(name);
    await namespace.configure(["link set lo up"]);
    return namespace;
  }

  /** Runs `ip` lines inside, in order, as one batch; stops at the first that fails and rejects with its text. */
  async configure(lines: readonly string[]): Promise<void> {
    await runCommand(["ip", "-n", this.name, "-batch", "-"], { input: `${lines.join("\n")}\n` });
  }

  /** Sets sysctls inside; keys in dotted form. A key that the kernel does not have is passed over. */
  async sysctl(settings: Readonly<Record<string, string | number>>): Promise<void> {
    const words = Object.entries(settings).map(([key, value]) => `${key}=${value}`);
    await this.exec(["sysctl", "-e", "-q", "-w", ...words]);
  }

  /** Runs a program inside to its end. */
  exec(argv: readonly [string, ...string[]], options: CommandOptions = {}): Promise<CommandResult> {
    return runCommand(["ip", "netns", "exec", this.name, ...argv], options);
  }

  /** Starts a program inside and leaves it running; its PID is the program's own (`ip netns exec` becomes it). */
  spawn(argv: readonly [string, ...string[]], options: SpawnOptions = {}): ChildProcess {
    return spawn("ip", ["netns", "exec", this.name, ...argv], options);
  }

  /** Ends every thread and process inside and removes the namespace. Safe to call twice; never rejects for what is gone already. */
  async remove(): Promise<void> {
    await Promise.all([...this.#inhabitants].map((end) => end()));
    this.#inhabitants.clear();
    for (let round = 0; round < 3; round++) {
      const { stdout } = await runCommand(["ip", "netns", "pids", this.name], { allowFailure: true });
      const pids = parsePids(stdout);
      if (pids.length === 0) break;
      killAll(pids);
      await sleep(10);
    }
    await runCommand(["ip", "netns", "del", this.name], { allowFailure: true });
  }

  /** The same as {@link NetworkNamespace.remove} for an `exit` handler, where nothing asynchronous runs any more. */
  removeNow(): void {
    removeNamespaceNow(this.name);
  }
}

function parsePids(text: string): number[] {
  return text
    .split(/\s+/)
    .map(Number)
    .filter((pid) => Number.isInteger(pid) && pid > 1 && pid !== process.pid);
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

function removeNamespaceNow(name: string): void {
  const quiet: ExecFileSyncOptionsWithStringEncoding = { encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] };
  try {
    killAll(parsePids(execFileSync("ip", ["netns", "pids", name], quiet)));
    execFileSync("ip", ["netns", "del", name], quiet);
  } catch {
    // Gone already; an exit handler has no one to tell.
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
  leftovers.forEach(removeNamespaceNow);
  return leftovers;
}
