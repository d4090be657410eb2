/** Generic netlink: its message header, and the ids that the kernel assigns to families (linux/genetlink.h). */
import { attributes, type ByteReader, u16host, zstring } from "./attributes.ts";
import { answersTo } from "./dump-retry.ts";
import { malformed, undefinedIf } from "./errors.ts";
import type { Reply } from "./frames.ts";
import type { MessageBuffer } from "./message-buffer.ts";
import type { NetlinkSocket } from "./socket.ts";

/** u8 command · u8 version · u16 reserved */
const GENLMSGHDR_BYTES = 4;
const GENL_ID_CTRL = 0x10;
const CTRL_CMD_GETFAMILY = 3;
const CTRL_VERSION = 2;

const control = attributes({ familyId: [1, u16host], familyName: [2, zstring] });

/** Appends a message to a family. @param write writes its attributes. @default none */
export function putGeneric(
  messages: MessageBuffer,
  family: number,
  command: number,
  version: number,
  flags: number,
  write: (out: MessageBuffer) => void = () => {},
): void {
  messages.put(family, flags, (out) => {
    out.u8(command);
    out.u8(version);
    out.u16(0);
    write(out);
  });
}

/** Command and attributes of a received message. */
export interface GenericPayload {
  readonly command: number;
  readonly input: ByteReader;
  /** Attributes: `[start, end)` of `input`. */
  readonly start: number;
  readonly end: number;
}

/** Reads the header that follows the netlink header. Throws `malformed`. */
export function genericPayload({ input, start, end }: Reply): GenericPayload {
  if (end - start < GENLMSGHDR_BYTES) throw malformed("no genlmsghdr", input.bytes, start);
  return { command: input.view.getUint8(start), input, start: start + GENLMSGHDR_BYTES, end };
}

/** The kernel's current id of a family; `undefined` if the kernel does not have the family (any more). */
export async function familyId(socket: NetlinkSocket, name: string): Promise<number | undefined> {
  const write = (request: MessageBuffer): void =>
    putGeneric(request, GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_VERSION, 0, (out) => {
      control.write(out, { familyName: name });
    });
  const ids = await answersTo(socket, write, (reply) => {
    const { input, start, end } = genericPayload(reply);
    return control.read(input, start, end).familyId;
  }).catch(undefinedIf("ENOENT"));
  return ids?.[0];
}
