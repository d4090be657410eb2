import { parseUserdata } from "../wire/userdata.ts";

const SET_COMMENT = 7;

/** The comment of a set or map, as nft stores it. */
export function setCommentOf(userdata: Uint8Array | undefined): string | undefined {
  const value = userdata && parseUserdata(userdata).get(SET_COMMENT);
  return value?.at(-1) === 0 ? Buffer.from(value.subarray(0, -1)).toString() : undefined;
}
