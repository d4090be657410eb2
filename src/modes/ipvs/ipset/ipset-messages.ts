/**
 * IP set messages over nfnetlink (uapi/linux/netfilter/ipset/ip_set.h). Integers and addresses are big-endian, and marked
 * as such.
 */

import {
  attributes,
  binary,
  type Codec,
  list,
  marked,
  u8,
  u16be,
  u32be,
  type ValueOf,
  zstring,
} from "../../../kernel/netlink/attributes.ts";
import { NLM_F_CREATE, NLM_F_DUMP } from "../../../kernel/netlink/constants.ts";
import type { MessageBuffer } from "../../../kernel/netlink/message-buffer.ts";
import {
  NFNL_SUBSYS_IPSET,
  NFPROTO_IPV4,
  NFPROTO_IPV6,
  NFPROTO_UNSPEC,
  nfprotoOf,
  putNfnetlink,
} from "../../../kernel/netlink/nfnetlink.ts";
import {
  familyOf,
  type IpAddress,
  type IpFamily,
  ipBytes,
  ipFromBytes,
  parseCidr,
  splitCidr,
} from "../../../net/ip.ts";
import { PROTOCOL_NUMBERS, type ProtocolName, protocolNameOfNumber } from "../../../net/protocol.ts";
import type { IpsetDefinition, IpsetEntry, IpsetOperation, IpsetType } from "./ipset.ts";

const COMMANDS = {
  protocol: 1,
  create: 2,
  destroy: 3,
  list: 7,
  add: 9,
  delete: 10,
  header: 12,
  type: 13,
} as const;
type IpsetCommand = keyof typeof COMMANDS;

/** In IPSET_ATTR_FLAGS: list definitions without members. */
const IPSET_FLAG_LIST_HEADER = 4;
/** In IPSET_ATTR_CADT_FLAGS of an entry: it is an exception, not a member. */
const IPSET_FLAG_NOMATCH = 4;
/** The values of upstream's `ipset create`: reference ipvs.md §6. */
const HASH_SIZE = 1024;
const MAX_ELEMENTS = 65_536;
const LAST_PORT = 65_535;

const address = attributes({ ipv4: [1, marked(binary)], ipv6: [2, marked(binary)] });
const creation = attributes({
  port: [4, marked(u16be)],
  portTo: [5, marked(u16be)],
  hashSize: [18, marked(u32be)],
  maxElements: [19, marked(u32be)],
});
const element = attributes({
  ip: [1, address],
  port: [4, marked(u16be)],
  protocol: [7, u8],
  flags: [8, marked(u32be)],
  line: [9, marked(u32be)],
  ip2: [20, address],
  cidr2: [21, u8],
});
type Element = ValueOf<typeof element>;

const DATA = 7;
/** Several elements in one message. */
const elements = list(DATA, element);

const common = {
  protocol: [1, u8],
  name: [2, zstring],
  /** The type's name. */
  type: [3, zstring],
  revision: [4, u8],
  family: [5, u8],
  flags: [6, marked(u32be)],
} as const;
const message = attributes(common);
type Message = ValueOf<typeof message>;
const creationMessage = attributes({ ...common, data: [DATA, creation] });
const elementMessage = attributes({ ...common, data: [DATA, element] });
/** `line` makes the kernel name the rejected element; without it, the kernel rejects messages with several elements. */
const elementsMessage = attributes({ ...common, line: [9, marked(u32be)], elements: [8, elements] });

/** The kernel's answer about a set, a type or the protocol. */
export interface IpsetReply {
  readonly name: string | undefined;
  readonly type: string | undefined;
  readonly family: IpFamily | undefined;
  readonly revision: number | undefined;
  /** The version of the netlink interface. */
  readonly protocol: number | undefined;
  readonly entries: readonly IpsetEntry[];
}

const replyMessage = attributes({ ...common, elements: [8, elements] });

/** Reads any answer, without members that do not fit our set types. Throws `malformed`. */
export function readReply(input: Parameters<typeof replyMessage.read>[0], start: number, end: number): IpsetReply {
  const { name, type, family, revision, protocol, elements = [] } = replyMessage.read(input, start, end);
  const entries: IpsetEntry[] = [];
  for (const item of elements) {
    const entry = toEntry(item);
    if (entry !== undefined) entries.push(entry);
  }
  return { name, type, family: toFamily(family), revision, protocol, entries };
}

/** Appends messages in one protocol version. */
export class IpsetWriter {
  readonly messages: MessageBuffer;
  readonly #protocol: number;

  constructor(messages: MessageBuffer, protocol: number) {
    this.messages = messages;
    this.#protocol = protocol;
  }

  /** Requests the protocol versions that the kernel supports. */
  askProtocol(): void {
    this.#write("protocol", {});
  }

  /** Requests the highest revision of a type. */
  askType(type: IpsetType, family: IpFamily | undefined): void {
    this.#write("type", { type, family: familyNumber(family) });
  }

  /** Creates a set; no error if a set exists that the kernel considers equal. */
  create({ name, type, family }: IpsetDefinition, revision: number): void {
    const data =
      type === "bitmap:port" ? { port: 0, portTo: LAST_PORT } : { hashSize: HASH_SIZE, maxElements: MAX_ELEMENTS };
    const value = { name: checked(name), type, revision, family: familyNumber(family), data };
    this.#put("create", NLM_F_CREATE, creationMessage, value);
  }

  askHeader(name: string): void {
    this.#write("header", { name: checked(name) });
  }

  /** Requests the definitions of all sets. */
  listHeaders(): void {
    this.#write("list", { flags: IPSET_FLAG_LIST_HEADER }, NLM_F_DUMP);
  }

  /** Requests a set with its members. */
  list(name: string): void {
    this.#write("list", { name: checked(name) }, NLM_F_DUMP);
  }

  destroy(name: string): void {
    this.#write("destroy", { name: checked(name) });
  }

  /** One operation as one message. Without NLM_F_EXCL, adding an existing entry and deleting a missing one succeed. */
  operation({ kind, set, entry }: IpsetOperation): void {
    this.#put(kind, 0, elementMessage, { name: checked(set), data: toElement(entry) });
  }

  /** Operations of one kind on one set as one message. The kernel stops at the first error; earlier ones are done. */
  operations(kind: IpsetOperation["kind"], set: string, entries: readonly IpsetEntry[]): void {
    const elements = entries.map((entry, index) => ({ ...toElement(entry), line: index + 1 }));
    this.#put(kind, 0, elementsMessage, { name: checked(set), line: 0, elements });
  }

  #write(command: IpsetCommand, value: Message, flags = 0): void {
    this.#put(command, flags, message, value);
  }

  #put<T extends Message>(command: IpsetCommand, flags: number, codec: Codec<T>, value: T): void {
    putNfnetlink(this.messages, NFNL_SUBSYS_IPSET, COMMANDS[command], flags, NFPROTO_IPV4, (out) =>
      codec.write(out, { ...value, protocol: this.#protocol }),
    );
  }
}

/** Rejects empty names: without a name, "destroy" means all sets. */
function checked(name: string): string {
  if (name === "") throw new RangeError("ipset: a set needs a name");
  return name;
}

function toElement(entry: IpsetEntry): Element {
  switch (entry.kind) {
    case "ip":
      return { ip: toAddressAttribute(entry.address) };
    case "port":
      return { port: entry.port };
    case "ip-port":
      return addressAndPort(entry);
    case "ip-port-ip":
      return { ...addressAndPort(entry), ip2: toAddressAttribute(entry.second) };
    case "ip-port-net": {
      const { address, length } = splitCidr(entry.network);
      return { ...addressAndPort(entry), ip2: toAddressAttribute(address), cidr2: length };
    }
  }
}

function addressAndPort(entry: Extract<IpsetEntry, { readonly protocol: ProtocolName }>): Element {
  return { ip: toAddressAttribute(entry.address), port: entry.port, protocol: PROTOCOL_NUMBERS[entry.protocol] };
}

/** `undefined` for an exception and for members that do not fit our five types. */
function toEntry({ ip, port, protocol, flags = 0, ip2, cidr2 }: Element): IpsetEntry | undefined {
  if (flags & IPSET_FLAG_NOMATCH) return undefined;
  const address = toAddress(ip);
  if (address === undefined) return port === undefined ? undefined : { kind: "port", port };
  if (port === undefined) return { kind: "ip", address };
  const name = protocolNameOfNumber(protocol);
  if (name === undefined) return undefined;
  const second = toAddress(ip2);
  if (second === undefined) return { kind: "ip-port", address, protocol: name, port };
  if (cidr2 === undefined) return { kind: "ip-port-ip", address, protocol: name, port, second };
  const network = parseCidr(`${second}/${cidr2}`);
  return network && { kind: "ip-port-net", address, protocol: name, port, network };
}

function toAddressAttribute(value: IpAddress): ValueOf<typeof address> {
  return familyOf(value) === "IPv4" ? { ipv4: ipBytes(value) } : { ipv6: ipBytes(value) };
}

function toAddress(value: ValueOf<typeof address> | undefined): IpAddress | undefined {
  if (value?.ipv4?.length === 4) return ipFromBytes(value.ipv4);
  return value?.ipv6?.length === 16 ? ipFromBytes(value.ipv6) : undefined;
}

function familyNumber(family: IpFamily | undefined): number {
  return family === undefined ? NFPROTO_UNSPEC : nfprotoOf(family);
}

function toFamily(number: number | undefined): IpFamily | undefined {
  return number === NFPROTO_IPV4 ? "IPv4" : number === NFPROTO_IPV6 ? "IPv6" : undefined;
}
