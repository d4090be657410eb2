/**
 * One virtual machine at a time on this host: software emulation takes both cores, and two would starve each other. A
 * kernel lock (`flock`), held by a small process that ends with this one, so that no crash leaves it taken.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { signalChild } from "../../src/kernel/child-process.ts";

/** What the lock protects. */
export interface MachineLock {
  /** An empty folder for sockets and logs; its path is short, because a socket's path is limited to 107 bytes. */
  readonly folder: string;
  /** Removes the folder and lets the next run start. */
  release(): void;
}

/** Writes its parent's PID for waiting runs, reports the lock, and holds it until its standard input ends. */
const HOLDER = 'echo "$1" > "$2"; echo locked; exec cat';

/**
 * Waits for its turn.
 * @param onWait called once, with the PID of the process that is ahead.
 * @param home where the lock is, the same for all who share the machine.
 * @throws Error if the turn does not come within `timeoutMs`, or without the program `flock` (package util-linux).
 */
export async function lockMachine(
  timeoutMs: number,
  onWait: (holder: string) => void,
  home = join(tmpdir(), `kpts-vm-${userInfo().uid}`),
): Promise<MachineLock> {
  mkdirSync(home, { recursive: true });
  const holderFile = join(home, "holder");
  const command = ["sh", "-c", HOLDER, "holder", String(process.pid), holderFile];
  const child = spawn("flock", [join(home, "lock"), ...command], { stdio: ["pipe", "pipe", "inherit"] });
  const notice = setTimeout(() => onWait(readOrEmpty(holderFile)), 1_000);
  const limit = setTimeout(() => signalChild(child, "SIGKILL"), timeoutMs);
  try {
    await firstOutput(
      child,
      `no turn within ${timeoutMs / 1000} s: process ${readOrEmpty(holderFile)} has the machine`,
    );
  } finally {
    clearTimeout(notice);
    clearTimeout(limit);
  }
  const folder = join(home, "run");
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder);
  const release = () => {
    rmSync(folder, { recursive: true, force: true });
    child.stdin?.end();
  };
  return { folder, release };
}

function firstOutput(child: ChildProcess, whenEnded: string): Promise<void> {
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("exit", () => reject(new Error(whenEnded)));
    child.stdout?.once("data", () => resolve());
  });
}

function readOrEmpty(file: string): string {
  try {
    return readFileSync(file, "utf8").trim();
  } catch {
    return "";
  }
}
