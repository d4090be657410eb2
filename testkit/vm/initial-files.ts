/** The initial root file system of a virtual machine, made for one job. */
import { readFileSync } from "node:fs";
import { basename, join } from "node:path";
import { type CpioEntry, cpioArchive, FOLDER, PROGRAM } from "./cpio.ts";
import type { GuestSettings, MachineFiles } from "./machine.ts";

/** What to run, and where the guest finds the checkout; both with the host's paths. */
export interface GuestJob {
  readonly checkout: string;
  /** A shell script. */
  readonly command: string;
}

const stem = (path: string) => basename(path).replace(/\.ko(\..*)?$/, "");

/** The modules with these names and their dependencies, as paths below the modules' folder, in loading order. */
function inOrder(names: readonly string[], modules: string): string[] {
  const lines = readFileSync(join(modules, "modules.dep"), "utf8").split("\n");
  const wanted = names.flatMap((name) => {
    const line = lines.find((candidate) => stem(candidate.split(":")[0] ?? "") === name);
    const [file = "", ...needed] = (line ?? "").split(/:? +|:$/).filter((word) => word !== "");
    // modules.dep names a module first and its deepest dependency last.
    return file === "" ? [] : [...needed.reverse(), file];
  });
  return [...new Set(wanted)];
}

const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

/** A POSIX shell line that runs these words. */
export function shellLine(words: readonly string[]): string {
  return words.map(quoted).join(" ");
}

const guestFile = (name: string) => readFileSync(new URL(`guest/${name}`, import.meta.url));

export function initialFileSystem(files: MachineFiles, guest: GuestSettings, job: GuestJob): Buffer {
  const modules = inOrder(guest.bootModules, files.modules);
  const settings = {
    CHECKOUT: job.checkout,
    MODULES: files.modules,
    BOOT_MODULES: modules.map((path) => basename(path)).join(" "),
    HOST_FILES: guest.hostFiles,
    OUTPUT: guest.outputDevice,
    STATUS: guest.statusDevice,
    LEGACY_IPTABLES: guest.legacyIptables ? "yes" : "",
    CGROUPS: guest.cgroups ? "yes" : "",
  };
  const lines = Object.entries(settings).map(([name, value]) => `${name}=${quoted(value)}\n`);
  const program = (path: string, content: Uint8Array): CpioEntry => ({ path, mode: PROGRAM, content });
  return cpioArchive([
    ...["bin", "dev", "host", "job", "layer", "modules", "proc", "root"].map((path) => ({ path, mode: FOLDER })),
    program("bin/busybox", readFileSync(files.busybox)),
    program("init", guestFile("init")),
    program("job/main", guestFile("main")),
    program("job/settings", Buffer.from(lines.join(""))),
    program("job/command", Buffer.from(`${job.command}\n`)),
    ...modules.map((path) => program(`modules/${basename(path)}`, readFileSync(join(files.modules, path)))),
  ]);
}
