/** Reading all objects of a kind, as one consistent picture where the kernel lets us: reference nfnetlink.md §10. */
import type { Codec } from "../../netlink/attributes.ts";
import { NLM_F_DUMP } from "../../netlink/constants.ts";
import { dumpWithRetry } from "../../netlink/dump-retry.ts";
import { NetlinkError } from "../../netlink/errors.ts";
import { MessageBuffer } from "../../netlink/message-buffer.ts";
import { beginNfnetlink, NFNL_SUBSYS_NFTABLES, nfnetlinkPayload } from "../../netlink/nfnetlink.ts";
import type { NetlinkSocket } from "../../netlink/socket.ts";

interface DumpRequest<T> {
  readonly family: number;
  /** NFT_MSG_GET… */
  readonly message: number;
  readonly codec: Codec<T>;
  /** Attributes that restrict the dump. */
  readonly filter: T;
  /**
   * Tells the objects apart, where a dump may pass over some when others change: then everything seen in any of five dumps counts.
   *
   * @default the last dump counts
   */
  readonly keyOf?: (object: T) => string | undefined;
}

/** Repeats the dump while the ruleset changes under it, up to 5 times. */
export async function dumpObjects<T>(
  socket: Pick<NetlinkSocket, "dump">,
  { family, message, codec, filter, keyOf }: DumpRequest<T>,
): Promise<T[]> {
  const request = new MessageBuffer(128);
  beginNfnetlink(request, NFNL_SUBSYS_NFTABLES, message, NLM_F_DUMP, family);
  codec.write(request.out, filter);
  request.end();
  let objects: T[] = [];
  const seen = new Map<string | undefined, T>();
  const isWhole = await dumpWithRetry(async () => {
    if (keyOf !== undefined) for (const object of objects) seen.set(keyOf(object), object);
    objects = [];
    let generation: number | undefined;
    let isMixed = false;
    await socket.dump(request, (reply) => {
      const { input, start, end, resourceId } = nfnetlinkPayload(reply);
      // Element dumps are never marked as interrupted; the generation in each message tells as much.
      generation ??= resourceId;
      if (resourceId !== generation) isMixed = true;
      objects.push(codec.read(input, start, end));
    });
    if (isMixed) throw new NetlinkError("interrupted", "netlink: the ruleset changed during the dump: repeat it");
  });
  if (isWhole || keyOf === undefined) return objects;
  for (const object of objects) seen.set(keyOf(object), object);
  return [...seen.values()];
}
