/**
 * Which file systems hold files that have a size. The others make up what is read, as processes and devices come and go: a read
 * may never return, take what was meant for others, or never end.
 */
import type { BigIntStats } from "node:fs";
import { statfs } from "node:fs/promises";

/** By magic number, as in linux/magic.h. */
const WITHOUT_SIZES: ReadonlyMap<number, string> = new Map([
  [0x00_00_9f_a0, "proc"],
  [0x62_65_65_72, "sysfs"],
  [0x64_62_67_20, "debugfs"],
  [0x74_72_61_63, "tracefs"],
  [0x62_65_65_70, "configfs"],
  [0x73_63_66_73, "securityfs"],
  [0xf9_7c_ff_8c, "selinuxfs"],
  [0x27_e0_eb, "cgroup"],
  [0x63_67_72_70, "cgroup2"],
  [0xca_fe_4a_11, "bpf"],
  [0xde_5e_81_e4, "efivarfs"],
  [0x61_65_67_6c, "pstore"],
  [0x19_80_02_02, "mqueue"],
  [0x1c_d1, "devpts"],
  [0x42_49_4e_4d, "binfmt_misc"],
  [0x6e_73_66_73, "nsfs"],
  [0x65_73_54_46, "fusectl"],
  [0x67_59_69_69, "rpc_pipefs"],
  [0x76_55_82_1, "resctrl"],
]);

/** Knows each device for as long as one listing lasts: what is mounted may change. */
export class FileSystems {
  readonly #byDevice = new Map<bigint, number>();

  /** Name of the file system of something that was found, if its files have no sizes. */
  async nameWithoutSizes(path: string, { dev }: BigIntStats): Promise<string | undefined> {
    const type = this.#byDevice.get(dev) ?? (await statfs(path)).type;
    this.#byDevice.set(dev, type);
    return WITHOUT_SIZES.get(type);
  }
}

/** What something is that is no regular file. Pure. */
export function kindOf(stats: BigIntStats): string {
  if (stats.isFIFO()) return "a pipe";
  if (stats.isSocket()) return "a socket";
  return stats.isCharacterDevice() || stats.isBlockDevice() ? "a device" : "no regular file";
}
