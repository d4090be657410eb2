/** Adds the counts that programs keep at the socket to those of the rules: docs/connections.md. */

import { addTo, type Count, type CountedPort, type ModeCounters } from "../../contract/traffic.ts";
import { kernelBpf } from "../../kernel/bpf/kernel-bpf.ts";
import { takeNumber, u64 } from "../../kernel/bpf/layout.ts";
import { ownNetnsCookie } from "../../kernel/netns-cookie.ts";
import { type IpFamily, ipFromBytes } from "../../net/ip.ts";
import { PROTOCOL_NUMBERS } from "../../net/protocol.ts";
import { type PlaceOfPins, pinFolderOf } from "./node-pins.ts";
import { closeAll } from "./open-maps.ts";
import { COUNT_KEY } from "./socket-balancer/maps.ts";
import { SocketPins } from "./socket-pins.ts";

/** The elements of a map of counts. */
type Counts = readonly (readonly [key: Uint8Array, value: Uint8Array])[];

const NOT_COUNTED =
  "These counts exclude connections decided at the socket, because the programs' maps have no names (ebpf.pinFolder).";

/** @param rules counters of the packet path. */
export function ebpfCounters(rules: ModeCounters, place: PlaceOfPins): ModeCounters {
  return {
    ...rules,
    async fill(ports, onPart) {
      const notes = await rules.fill(ports);
      onPart?.();
      let isWhole = true;
      for (const [family, own] of Map.groupBy(ports, (port) => port.family)) {
        const counts = readCounts(family, place);
        isWhole &&= counts !== undefined;
        addCounts(family, counts ?? [], own);
      }
      return isWhole ? notes : [NOT_COUNTED, ...notes];
    },
  };
}

/** Undefined if the map cannot be found. @throws BpfError */
function readCounts(family: IpFamily, place: PlaceOfPins): Counts | undefined {
  const folder = pinFolderOf(place, ownNetnsCookie);
  if (folder?.ok !== true) return undefined;
  const found = new SocketPins(kernelBpf().pins, folder.path, family).findCounts();
  try {
    return found?.counts.entries();
  } finally {
    closeAll(found ?? {});
  }
}

/** Skips what the rules do not count, because counting is off or excludes endpoints. Changes only the counts. */
function addCounts(family: IpFamily, counts: Counts, ports: readonly CountedPort[]): void {
  const { address, port, protocol, isRefused, endpoint, endpointPort } = COUNT_KEY[family].fields;
  const places = new Map<string, { readonly count: Count; readonly endpoints: CountedPort["endpoints"] }>();
  for (const { name, frontends, endpoints } of ports) {
    for (const { address: ip = "*", port: number, count } of frontends) {
      places.set(`${PROTOCOL_NUMBERS[name.protocol]} ${ip} ${number}`, { count, endpoints });
    }
  }
  for (const [key, value] of counts) {
    const addressOf = ({ at, bytes }: typeof address) => ipFromBytes(key.slice(at, at + bytes));
    const [number, of] = [takeNumber(key, port), takeNumber(key, protocol)];
    const place = places.get(`${of} ${addressOf(address)} ${number}`) ?? places.get(`${of} * ${number}`);
    if (place === undefined || place.count.counted === null) continue;
    const connections = takeNumber(value, u64(0));
    addTo(place.count, takeNumber(key, isRefused) === 0 ? "counted" : "refused", connections);
    const [ip, ipPort] = [addressOf(endpoint), takeNumber(key, endpointPort)];
    const reached = place.endpoints.find((one) => one.ip === ip && one.port === ipPort)?.count;
    if (reached !== undefined && reached.counted !== null) addTo(reached, "counted", connections);
  }
}
