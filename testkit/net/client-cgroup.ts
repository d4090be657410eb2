/**
 * A cgroup for some threads of this process: what a test attaches to it sees their sockets, and no others of the machine.
 * The process itself is in the parent meanwhile, because its threads can only be separated below the cgroup of the process.
 */
import { existsSync, mkdirSync, readFileSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { cgroup2Mounts } from "../../src/kernel/bpf/places.ts";
import { stretched } from "../support/patience.ts";

const REMOVAL_LIMIT_MS = 5_000;
const PAUSE_MS = 20;

/** The mount point of the cgroup2 file system, or undefined. */
export function cgroupMount(): string | undefined {
  return cgroup2Mounts(readFileSync("/proc/self/mountinfo", "utf8"))[0];
}

let made = 0;

export class ClientCgroup {
  readonly #parent: string;
  readonly #mount: string;

  private constructor(mount: string, name: string) {
    this.#mount = mount;
    this.#parent = join(mount, `${name}-${process.pid}-${made++}`);
  }

  /** @param name prefix of the cgroup's name. @throws Error if no cgroup2 file system is writable. */
  static create(name: string): ClientCgroup {
    const mount = cgroupMount();
    if (mount === undefined) throw new Error("no cgroup2 file system is mounted");
    const cgroup = new ClientCgroup(mount, name);
    mkdirSync(cgroup.#parent);
    mkdirSync(cgroup.path);
    writeFileSync(join(cgroup.path, "cgroup.type"), "threaded");
    writeFileSync(join(cgroup.#parent, "cgroup.procs"), `${process.pid}`);
    return cgroup;
  }

  /** The folder of the cgroup that threads enter. */
  get path(): string {
    return join(this.#parent, "threads");
  }

  /** Ends what still runs in it. */
  async remove(): Promise<void> {
    if (!existsSync(this.#parent)) return;
    writeFileSync(join(this.#mount, "cgroup.procs"), `${process.pid}`);
    writeFileSync(join(this.#parent, "cgroup.kill"), "1");
    // The kernel releases a process some time after its end.
    await repeated(() => {
      if (existsSync(this.path)) rmdirSync(this.path);
      rmdirSync(this.#parent);
    });
  }
}

async function repeated(work: () => void): Promise<void> {
  const endMs = performance.now() + stretched(REMOVAL_LIMIT_MS);
  for (;;) {
    try {
      work();
      return;
    } catch (error) {
      if (performance.now() > endMs) throw error;
      await sleep(PAUSE_MS);
    }
  }
}
