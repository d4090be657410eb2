/** `sockaddr_in`, for system calls. */
import { endianness } from "node:os";

const AF_INET = 2;

export function socketAddress(address: string, port: number): Uint8Array {
  const bytes = new Uint8Array(16);
  bytes[endianness() === "LE" ? 0 : 1] = AF_INET;
  bytes.set([port >> 8, port & 255, ...address.split(".").map(Number)], 2);
  return bytes;
}
