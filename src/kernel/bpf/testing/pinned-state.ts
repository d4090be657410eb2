/** The content of a folder of a bpf file system, as another process sees it. */
import { readdirSync } from "node:fs";
import { frontendWords, leadingMaps, MAPS_VERSION, memoryMaps } from "../../../modes/ebpf/socket-balancer/maps.ts";
import type { IpFamily } from "../../../net/ip.ts";
import { kernelBpf } from "../kernel-bpf.ts";

const hex = (bytes: Uint8Array): string => Buffer.from(bytes).toString("hex");

/** All paths below the folder. */
export function pinnedPaths(folder: string): readonly string[] {
  return readdirSync(folder, { recursive: true }).map(String).sort();
}

/** One family's state: links, and of what records of clients and sockets speak. Equal if none was moved in between. */
export function pinnedState(folder: string, family: IpFamily): Readonly<Record<string, unknown>> {
  const { pins } = kernelBpf();
  const state: Record<string, unknown> = {};
  for (const name of pins.list(`${folder}/links`) ?? []) {
    const link = pins.link(`${folder}/links/${name}`);
    state[name] = `in cgroup ${link?.cgroupId}`;
    link?.release();
  }
  const capacity = (entries: number) => ({ frontends: entries, slots: entries, backends: entries });
  for (const key of ["frontends", "backends"] as const) {
    const { name } = leadingMaps(family, capacity(1))[key];
    const path = `${folder}/v${MAPS_VERSION}/${name}`;
    const map = pins.map(path, (entries) => leadingMaps(family, capacity(entries))[key]);
    if (key === "frontends")
      state[name] = map
        ?.entries()
        .map(([frontend, value]) => `${hex(frontend)} list ${frontendWords(value).id}`)
        .sort();
    // Includes the number of writes to each backend.
    else
      state[name] = [...(map?.words().entries() ?? [])].flatMap(([at, word]) => (word === 0n ? [] : `${at} ${word}`));
    map?.close();
  }
  const { nodeAddresses } = memoryMaps(family);
  const addresses = pins.map(`${folder}/v${MAPS_VERSION}/${nodeAddresses.name}`, () => nodeAddresses);
  state[nodeAddresses.name] = addresses
    ?.entries()
    .map(([key]) => hex(key))
    .sort();
  addresses?.close();
  return state;
}
