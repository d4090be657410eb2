/**
 * The two locks that guard xtables, for restore commands too old to take them (before 1.6.2): reference iptables.md
 * §10.1. Loaded only on hosts that have such a version.
 */
import { closeSync, constants, openSync } from "node:fs";
import { createRequire } from "node:module";
import { createServer, type Server } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { IptablesError } from "./iptables.ts";

const RETRY_MS = 200;
const GIVE_UP_MS = 2_000;

/** The lock of 1.4.20 and older: a name in the abstract socket namespace (of the network namespace). */
const OLD_LOCK = "\0xtables";

const LOCK_EX_NB = 2 | 4;

type Flock = (fd: number, operation: number) => number;
let flock: Flock | undefined;

function loadFlock(): Flock {
  const koffi: typeof import("koffi") = createRequire(import.meta.url)("koffi");
  // The process's own symbols: Node is linked to the C library, whichever that is.
  return koffi.load(null).func("int flock(int fd, int operation)");
}

/**
 * Takes both locks, polling each every 200 ms for 2 s. Dispose of the result to release them.
 * Throws {@link IptablesError} `lock_held`.
 * @param command what the locks are for; named in errors.
 * @param path the newer lock's file, created with mode 0600.
 */
export async function takeXtablesLocks(command: string, path: string): Promise<AsyncDisposable> {
  const file = await takeFileLock(command, path);
  try {
    const socket = await takeSocketLock(command);
    return {
      async [Symbol.asyncDispose]() {
        await closed(socket);
        closeSync(file);
      },
    };
  } catch (error) {
    closeSync(file);
    throw error;
  }
}

async function takeFileLock(command: string, path: string): Promise<number> {
  let fd: number;
  try {
    fd = openSync(path, constants.O_CREAT | constants.O_RDWR, 0o600);
  } catch (error) {
    throw new IptablesError("failed", command, -1, `failed to open iptables lock ${path}: ${messageOf(error)}`, {
      cause: error,
    });
  }
  try {
    flock ??= loadFlock();
    const lock = flock;
    if (await poll(() => lock(fd, LOCK_EX_NB) === 0)) return fd;
  } catch (error) {
    closeSync(fd);
    throw error;
  }
  closeSync(fd);
  throw lockHeld(command, "new", path);
}

async function takeSocketLock(command: string): Promise<Server> {
  let held: Server | undefined;
  await poll(async () => {
    held = await bound();
    return held !== undefined;
  });
  if (held === undefined) throw lockHeld(command, "old", "@xtables");
  return held;
}

/** A server on the name, or undefined when another process has it. */
function bound(): Promise<Server | undefined> {
  const server = createServer((connection) => void connection.destroy());
  server.unref();
  return new Promise((resolve) => {
    server.once("error", () => resolve(undefined));
    server.listen(OLD_LOCK, () => resolve(server));
  });
}

async function poll(attempt: () => boolean | Promise<boolean>): Promise<boolean> {
  for (let waitedMs = 0; ; waitedMs += RETRY_MS) {
    if (await attempt()) return true;
    if (waitedMs >= GIVE_UP_MS) return false;
    await sleep(RETRY_MS);
  }
}

function lockHeld(command: string, which: "new" | "old", name: string): IptablesError {
  const output = `failed to acquire ${which} iptables lock: another program has held ${name} for ${GIVE_UP_MS} ms`;
  return new IptablesError("lock_held", command, -1, output);
}

function closed(server: Server): Promise<void> {
  return new Promise((resolve) => {
    server.close(() => resolve());
  });
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
