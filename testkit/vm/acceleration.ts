/**
 * Whether the processor can run the qemu machine's code directly (KVM). Neither `/dev/kvm` nor the processor's flags
 * prove it: inside another virtual machine the device may exist although no ordinary kernel boots. So a boot is tried,
 * once per boot of the host.
 */
import { spawnSync } from "node:child_process";
import { accessSync, constants, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { cpioArchive, FOLDER, PROGRAM } from "./cpio.ts";
import type { MachineFiles } from "./machine.ts";

export const QEMU = "qemu-system-x86_64";

/** Options of qemu. */
export interface Acceleration {
  readonly accel: string;
  readonly cpu: string;
}

const KVM: Acceleration = { accel: "kvm", cpu: "host" };
// Without AVX, which is slow to emulate and which Node.js uses if present: a quarter faster than `max`.
const EMULATION: Acceleration = { accel: "tcg,thread=multi", cpu: "Nehalem" };

const BOOT_LIMIT_MS = 10_000;
const MARK = "kpts-booted";

/** @param device the KVM device; a test passes its own. */
export function acceleration(cache: string, files: MachineFiles, device = "/dev/kvm"): Acceleration {
  try {
    accessSync(device, constants.R_OK | constants.W_OK);
  } catch {
    return EMULATION;
  }
  const memory = join(cache, "kvm.json");
  const key = `${readFileSync("/proc/sys/kernel/random/boot_id", "utf8").trim()} ${files.kernel}`;
  const works = remembered(memory, key) ?? boots(files);
  writeFileSync(memory, JSON.stringify({ key, works }));
  return works ? KVM : EMULATION;
}

function remembered(memory: string, key: string): boolean | undefined {
  try {
    const known = JSON.parse(readFileSync(memory, "utf8")) as { key: string; works: boolean };
    return known.key === key ? known.works : undefined;
  } catch {
    return undefined;
  }
}

/** Starts the kernel with a program that prints a message and exits. */
function boots({ kernel, busybox }: MachineFiles): boolean {
  const folder = mkdtempSync(join(tmpdir(), "kpts-kvm-"));
  const init = `#!/bin/busybox sh\necho ${MARK}\n/bin/busybox poweroff -f\n`;
  try {
    const initrd = join(folder, "initrd");
    writeFileSync(
      initrd,
      cpioArchive([
        ...["bin", "dev"].map((path) => ({ path, mode: FOLDER })),
        { path: "bin/busybox", mode: PROGRAM, content: readFileSync(busybox) },
        { path: "init", mode: PROGRAM, content: Buffer.from(init) },
      ]),
    );
    const words = [
      "-nodefaults",
      "-no-user-config",
      "-no-reboot",
      "-display",
      "none",
      "-serial",
      "stdio",
      "-m",
      "256M",
    ];
    const boot = ["-kernel", kernel, "-initrd", initrd, "-append", "console=ttyS0 quiet panic=-1"];
    const args = ["-accel", KVM.accel, "-cpu", KVM.cpu, ...words, ...boot];
    const options = { timeout: BOOT_LIMIT_MS, killSignal: "SIGKILL", encoding: "utf8" } as const;
    return spawnSync(QEMU, args, options).stdout?.includes(MARK) ?? false;
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
