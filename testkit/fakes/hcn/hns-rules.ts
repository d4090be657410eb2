/** How the HNS in memory judges documents: what is in them, what is wrong with them, and the error message. */
import type { HcnKind } from "../../../src/modes/kernelspace/hcn/hcn-calls.ts";
import { HcnError } from "../../../src/modes/kernelspace/hcn/hcn-error.ts";
import { type JsonObject, listOf, numberOf, objectOf, textOf } from "../../../src/modes/kernelspace/hcn/json-fields.ts";
import { type IpAddress, parseCidr, parseIpAddress } from "../../../src/net/ip.ts";

/** HRESULTs. */
export const HR = {
  accessDenied: 0x8007_0005,
  outOfMemory: 0x8007_000e,
  elementNotFound: 0x8007_0490,
  notImplemented: 0x8000_4001,
  networkNotFound: 0x803b_0001,
  endpointNotFound: 0x803b_0002,
  portAlreadyExists: 0x803b_0013,
  badGuid: 0x803b_0019,
  badJson: 0x803b_001b,
  lacksReference: 0x803b_001c,
  managerStopped: 0x803b_0020,
  hasReferences: 0x803b_002c,
  badInternalPort: 0x803b_002d,
  reservedAddress: 0x803b_002f,
} as const;

export type HcnVerb = "Enumerate" | "Open" | "Query" | "Close" | "Create" | "Modify" | "Delete" | "Call" | "Watch";

/** The frontends of a load balancer: `family-and-address protocol port`. */
export function frontendsOf(document: JsonObject): string[] {
  const isIpv6 = (numberOf(document.Flags) & 2) !== 0;
  const vips: readonly (IpAddress | undefined)[] = listOf(document.FrontendVIPs).map((vip) =>
    parseIpAddress(textOf(vip)),
  );
  const places = vips.length === 0 ? [isIpv6 ? "node6" : "node4"] : vips;
  return places.flatMap((place) =>
    listOf(document.PortMappings).map((mapping) => {
      const { Protocol, ExternalPort } = objectOf(mapping);
      return `${place} ${numberOf(Protocol)} ${numberOf(ExternalPort)}`;
    }),
  );
}

export function subnetsOf(network: JsonObject) {
  return listOf(network.Ipams)
    .flatMap((ipam) => listOf(objectOf(ipam).Subnets))
    .flatMap((subnet) => parseCidr(textOf(objectOf(subnet).IpAddressPrefix)) ?? []);
}

export function parseJson(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw new HcnError("Hcn", HR.badJson, record(HR.badJson));
  }
}

export function failed(verb: HcnVerb, kind: HcnKind | undefined, hresult: number): HcnError {
  const name = kind === undefined ? "HNSCall" : `Hcn${verb}${kind}${verb === "Enumerate" ? "s" : ""}`;
  return new HcnError(name, hresult, record(hresult));
}

function record(hresult: number): string {
  return JSON.stringify({ Success: false, Error: "refused", ErrorCode: hresult });
}
