/**
 * IP addresses, prefixes and ports as validated, canonical values.
 *
 * Every address that reaches a rule passes through here once, at the edge; text from the API is never echoed
 * (reference services.md §2). A branded value is its canonical text: dotted decimal, or RFC 5952 for IPv6.
 */
declare const brand: unique symbol;
type Brand<T, Name extends string> = T & { readonly [brand]: Name };

/** The two families that a proxier can serve, spelled as Kubernetes spells them. */
export type IpFamily = "IPv4" | "IPv6";

export const IP_FAMILIES: readonly IpFamily[] = ["IPv4", "IPv6"];

/** A canonical IP address: `10.0.0.1` or `fd00::1`. */
export type IpAddress = Brand<string, "IpAddress">;

/** A canonical prefix with host bits cleared: `10.0.0.0/8` or `fd00::/8`. */
export type Cidr = Brand<string, "Cidr">;

/** A port number, 1 to 65535. */
export type Port = Brand<number, "Port">;

const CANONICAL_IPV4 = /^(?:(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)(?:\.(?!$)|$)){4}$/;
const LINK_LOCAL_V6 = "fe80::/10" as Cidr; // canonical
const MAPPED_BITS = 96;
const IPV4_OCTETS = /^(\d+)\.(\d+)\.(\d+)\.(\d+)$/;
const IPV6_SHAPE = /^[0-9a-fA-F:]+$/;
const IPV4_MAPPED = /^::ffff:([\da-f]+):([\da-f]+)$/;
const WITH_IPV4 = /^([0-9a-fA-F:]+:)(\d+\.\d+\.\d+\.\d+)$/;

/**
 * Parses an address the way Kubernetes does for existing objects: decimal IPv4 octets may carry leading zeroes,
 * IPv6 zones are refused, and an IPv4-mapped IPv6 address is IPv4.
 *
 * @returns the canonical address, or `undefined` when the text is not an address.
 */
export function parseIpAddress(text: string): IpAddress | undefined {
  // Nearly all are canonical; then the value is the text itself, not a copy.
  if (CANONICAL_IPV4.test(text)) return text as IpAddress;
  const octets = IPV4_OCTETS.exec(text);
  if (octets !== null) {
    const [, a, b, c, d] = octets;
    const numbers = [Number(a), Number(b), Number(c), Number(d)];
    return numbers.every((n) => n <= 255) ? (numbers.join(".") as IpAddress) : undefined;
  }
  const groups = inGroups(text);
  if (!groups.includes(":") || !IPV6_SHAPE.test(groups)) return undefined;
  // The URL standard writes IPv6 addresses as RFC 5952 does, except IPv4-mapped ones.
  const canonical = URL.parse(`http://[${groups}]`)?.hostname.slice(1, -1);
  if (canonical === undefined) return undefined;
  const [, high, low] = IPV4_MAPPED.exec(canonical) ?? [];
  // A flat copy: the slice would keep the whole URL in memory, and there are tens of thousands.
  if (high === undefined || low === undefined) return canonical.split(":").join(":") as IpAddress;
  const [first, last] = [Number.parseInt(high, 16), Number.parseInt(low, 16)];
  return `${first >> 8}.${first & 255}.${last >> 8}.${last & 255}` as IpAddress;
}

/** Rewrites an IPv6 address that ends in an IPv4 one as groups alone; those octets may have leading zeroes, too. */
function inGroups(text: string): string {
  const [, head, tail] = WITH_IPV4.exec(text) ?? [];
  const last = tail === undefined ? undefined : parseIpAddress(tail);
  if (last === undefined) return text;
  const [a = 0, b = 0, c = 0, d = 0] = ipBytes(last);
  return `${head}${((a << 8) | b).toString(16)}:${((c << 8) | d).toString(16)}`;
}

/**
 * Parses a prefix; surrounding text is not trimmed, a prefix length may have leading zeroes, host bits are cleared.
 * `::ffff:10.0.0.0/104` is `10.0.0.0/8`.
 *
 * @returns the canonical prefix, or `undefined` when the text is not one.
 */
export function parseCidr(text: string): Cidr | undefined {
  const slash = text.indexOf("/");
  if (slash < 0) return undefined;
  const address = parseIpAddress(text.slice(0, slash));
  const lengthText = text.slice(slash + 1);
  if (address === undefined || !/^\d+$/.test(lengthText)) return undefined;
  const bytes = ipBytes(address);
  // An IPv4-mapped prefix counts its length from the beginning of the IPv6 address.
  const isMapped = text.includes(":") && bytes.length === 4;
  const length = Number(lengthText) - (isMapped ? MAPPED_BITS : 0);
  if (length < 0 || length > bytes.length * 8) return undefined;
  return formatCidr(bytes, length);
}

function formatCidr(bytes: Uint8Array, length: number): Cidr {
  const mask = prefixMask(length, bytes.length);
  return `${ipFromBytes(bytes.map((byte, index) => byte & (mask[index] ?? 0)))}/${length}` as Cidr;
}

/** The bytes of `255.255.255.0` for a length of 24. */
export function prefixMask(length: number, bytes: number): Uint8Array<ArrayBuffer> {
  return Uint8Array.from({ length: bytes }, (_, index) => 0xff << (8 - Math.min(8, Math.max(0, length - index * 8))));
}

/** Checks a port number. @returns the port, or `undefined` outside 1–65535. */
export function toPort(value: number): Port | undefined {
  return Number.isInteger(value) && value >= 1 && value <= 65535 ? (value as Port) : undefined;
}

/** The family of a canonical address or prefix. */
export function familyOf(value: IpAddress | Cidr): IpFamily {
  return value.includes(":") ? "IPv6" : "IPv4";
}

/** Whether a prefix has length 0 and so matches every address of its family. */
export function isZeroCidr(cidr: Cidr): boolean {
  return cidr.endsWith("/0");
}

/** The prefix that matches every address of a family. */
export function zeroCidr(family: IpFamily): Cidr {
  return (family === "IPv4" ? "0.0.0.0/0" : "::/0") as Cidr;
}

/** The prefix that matches this address alone (`/32` or `/128`). */
export function hostCidr(address: IpAddress): Cidr {
  return `${address}/${familyOf(address) === "IPv4" ? 32 : 128}` as Cidr;
}

export function splitCidr(cidr: Cidr): { readonly address: IpAddress; readonly length: number } {
  const slash = cidr.indexOf("/");
  return { address: cidr.slice(0, slash) as IpAddress, length: Number(cidr.slice(slash + 1)) };
}

/** Whether the address lies in the prefix; false across families. */
export function cidrContains(cidr: Cidr, address: IpAddress): boolean {
  if (familyOf(cidr) !== familyOf(address)) return false;
  const { length } = splitCidr(cidr);
  return formatCidr(ipBytes(address), length) === cidr;
}

/** The intersection of two prefixes of one family; undefined when they have nothing in common. */
export function narrowerCidr(one: Cidr, other: Cidr): Cidr | undefined {
  const [first, second] = [splitCidr(one), splitCidr(other)];
  const [wide, narrow] = first.length <= second.length ? [one, other] : [other, one];
  return cidrContains(wide, splitCidr(narrow).address) ? narrow : undefined;
}

/** The address at an offset from the first one of a prefix; offsets past the last address wrap around. */
export function addressAt(cidr: Cidr, offset: number): IpAddress {
  const { address, length } = splitCidr(cidr);
  const bytes = ipBytes(address);
  const hostBits = bytes.length * 8 - length;
  const last = bytes.length - 1;
  const room = hostBits >= 16 ? 0xffff : 2 ** hostBits - 1;
  const within = offset & room;
  bytes[last] = (bytes[last] ?? 0) | (within & 0xff);
  bytes[last - 1] = (bytes[last - 1] ?? 0) | (within >> 8);
  return ipFromBytes(bytes);
}

/** Network-order bytes of an address: 4 or 16 of them. */
export function ipBytes(address: IpAddress): Uint8Array {
  const bytes = new Uint8Array(familyOf(address) === "IPv4" ? 4 : 16);
  putIpBytes(bytes, 0, address);
  return bytes;
}

/** Writes what {@link ipBytes} returns into zeroed bytes. @param address canonical, read by character: {@link ipv4Word}. */
export function putIpBytes(bytes: Uint8Array, at: number, address: string): void {
  if (address.includes(":")) {
    putIPv6(bytes, at, address);
    return;
  }
  const word = ipv4Word(address);
  for (let index = 0; index < 4; index++) bytes[at + index] = word >>> (8 * index);
}

const DOT = 0x2e;
const COLON = 0x3a;
const ZERO = 0x30;

/**
 * The bytes of an IPv4 address as a 32-bit number, the first byte lowest: as a little-endian host reads them in memory. Parsed by
 * character, because hundreds of thousands of endpoints pass here, and the text is canonical: digits and dots.
 */
export function ipv4Word(address: string): number {
  let word = 0;
  let shift = 0;
  let value = 0;
  for (let index = 0; index < address.length; index++) {
    const code = address.charCodeAt(index);
    if (code === DOT) {
      word |= value << shift;
      shift += 8;
      value = 0;
    } else {
      value = value * 10 + code - ZERO;
    }
  }
  return (word | (value << shift)) >>> 0;
}

/** Groups before `::` are counted from the front, those after it from the end. */
function putIPv6(bytes: Uint8Array, at: number, address: string): void {
  const gap = address.indexOf("::");
  const headEnd = gap < 0 ? address.length : gap;
  putGroups(bytes, at, address, 0, headEnd);
  if (gap < 0 || gap + 2 === address.length) return;
  let groups = 1;
  for (let i = gap + 2; i < address.length; i++) if (address.charCodeAt(i) === COLON) groups++;
  putGroups(bytes, at + 16 - groups * 2, address, gap + 2, address.length);
}

function putGroups(bytes: Uint8Array, at: number, address: string, from: number, to: number): void {
  let index = at;
  let group = 0;
  for (let i = from; i <= to; i++) {
    const code = i === to ? COLON : address.charCodeAt(i);
    if (code !== COLON) group = group * 16 + (code <= 0x39 ? code - 0x30 : (code | 0x20) - 0x57);
    else if (from < to) {
      bytes[index++] = group >> 8;
      bytes[index++] = group;
      group = 0;
    }
  }
}

/** The inverse of {@link ipBytes}; an IPv4-mapped 16-byte address comes back as IPv4. Throws on other lengths. */
export function ipFromBytes(bytes: Uint8Array): IpAddress {
  // Several times as fast as join().
  if (bytes.length === 4) return `${bytes[0]}.${bytes[1]}.${bytes[2]}.${bytes[3]}` as IpAddress;
  let groups = "";
  for (let at = 0; at < bytes.length; at += 2) {
    groups += `${at === 0 ? "" : ":"}${(((bytes[at] ?? 0) << 8) | (bytes[at + 1] ?? 0)).toString(16)}`;
  }
  const address = bytes.length === 16 ? parseIpAddress(groups) : undefined;
  if (address === undefined) throw new RangeError(`an address has 4 or 16 bytes, not ${bytes.length}`);
  return address;
}

/** All loopback addresses of a family. */
export const LOOPBACK = { IPv4: "127.0.0.0/8" as Cidr, IPv6: "::1/128" as Cidr } as const; // canonical

/** Whether an address is a loopback one (127.0.0.0/8 or ::1). */
export function isLoopback(address: IpAddress): boolean {
  return address === "::1" || address.startsWith("127.");
}

/**
 * Whether an address is an IPv6 link-local one (fe80::/10), which means nothing without its interface. IPv4's link-local
 * addresses need none.
 */
export function isLinkLocalV6(address: IpAddress): boolean {
  return address.startsWith("fe") && cidrContains(LINK_LOCAL_V6, address);
}

const SPECIAL =
  /^(?:(?<loopback>127\.|::1$)|(?<unspecified>0\.0\.0\.0$|::$)|(?<linkLocal>169\.254\.|fe[89ab][\da-f]:)|(?<multicast>2(?:2[4-9]|3\d)\.|ff[\da-f]{2}:)|255\.255\.255\.255$)/;

export type SpecialAddress = "loopback" | "unspecified" | "link-local" | "multicast" | "broadcast";

/** Why no connection over a network can use an address; undefined for ordinary ones. */
export function specialAddress(address: IpAddress): SpecialAddress | undefined {
  const match = SPECIAL.exec(address);
  if (match === null) return undefined;
  const { loopback, unspecified, linkLocal, multicast } = match.groups ?? {};
  if (loopback !== undefined) return "loopback";
  if (unspecified !== undefined) return "unspecified";
  if (linkLocal !== undefined) return "link-local";
  return multicast === undefined ? "broadcast" : "multicast";
}

/** Whether an address is the unspecified one (0.0.0.0 or ::). */
export function isUnspecified(address: IpAddress): boolean {
  return address === "::" || address === "0.0.0.0";
}

export function unspecifiedAddress(family: IpFamily): IpAddress {
  return (family === "IPv4" ? "0.0.0.0" : "::") as IpAddress;
}

/** An address with a port, as {@link joinHostPort} writes it. */
export function parseHostPort(text: string): { readonly address: IpAddress; readonly port: number } | undefined {
  const colon = text.lastIndexOf(":");
  const address = parseIpAddress(text.slice(0, colon).replace(/^\[|\]$/g, ""));
  const port = Number(text.slice(colon + 1));
  return address === undefined || !Number.isInteger(port) ? undefined : { address, port };
}

/** `10.0.0.1:80` or `[fd00::1]:80`: the text form of an endpoint, also the input of chain-name hashes. */
export function joinHostPort(address: string, port: number | string): string {
  return `${urlHost(address)}:${port}`;
}

/** An address as written before a port: `10.0.0.1`, `[fd00::1]`. */
export function urlHost(address: string): string {
  return address.includes(":") ? `[${address}]` : address;
}
