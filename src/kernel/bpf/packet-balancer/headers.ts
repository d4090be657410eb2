/** The headers of a packet as bytes in memory, and what a program compares in them. Numbers are as in packets unless said. */
import { type Cidr, type IpFamily, ipBytes, splitCidr } from "../../../net/ip.ts";
import { be16, bytes, type Field, layout, takeNumber, u8, u16, u32 } from "../layout.ts";

/** The network's header, without options. */
export const HEADER = {
  IPv4: layout("IPv4 header", 20, {
    versionAndLength: u8(0),
    fragment: u16(6),
    protocol: u8(9),
    source: bytes(12, 4),
    destination: bytes(16, 4),
  }),
  IPv6: layout("IPv6 header", 40, { protocol: u8(6), source: bytes(8, 16), destination: bytes(24, 16) }),
} as const;

/** What begins TCP and UDP alike, up to the flags that only TCP has. */
export const TRANSPORT = layout("TCP header", 16, { sourcePort: be16(0), destinationPort: be16(2), flags: u8(13) });
/** Both ports in one word. */
export const PORTS: Field = u32(0);
/** Bytes of UDP's header. */
export const UDP_HEADER_BYTES = 8;

/** Version 4, five words. */
export const PLAIN_IPV4 = 0x45;
/** More fragments, or not the first: the field as a little-endian machine reads it. */
export const FRAGMENT_BITS = 0xff3f;
/** FIN, SYN, RST and ACK; and SYN alone, which opens a connection. */
export const TCP_FLAGS = 0x17;
export const TCP_SYN = 0x02;

/** Ethernet types as a little-endian machine reads them. */
export const ETHERNET_TYPES: Readonly<Record<IpFamily, number>> = { IPv4: 0x0008, IPv6: 0xdd86 };

/** A word of an address, and what its bits must be. */
export interface MaskedWord {
  /** Offset in the address. */
  readonly at: number;
  /** With a sign, as immediates have it. */
  readonly mask: number;
  readonly value: number;
}

/** The words of an address by which it is known to lie in a range, as a little-endian machine reads them. Pure. */
export function maskedWords(range: Cidr): readonly MaskedWord[] {
  const { address, length } = splitCidr(range);
  const wanted = ipBytes(address);
  const words: MaskedWord[] = [];
  for (let at = 0; at < length / 8; at += 4) {
    const bits = Math.min(32, length - 8 * at);
    const mask = new Uint8Array(Uint32Array.of((0xffff_ffff << (32 - bits)) >>> 0).buffer).reverse();
    const value = wanted.slice(at, at + 4).map((byte, index) => byte & (mask[index] ?? 0));
    words.push({ at, mask: takeNumber(mask, u32(0)) | 0, value: takeNumber(value, u32(0)) | 0 });
  }
  return words;
}
