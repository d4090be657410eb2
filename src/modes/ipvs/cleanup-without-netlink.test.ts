import assert from "node:assert/strict";
import { test } from "node:test";
import { NetlinkError } from "../../kernel/netlink/errors.ts";
import { NetlinkSocket } from "../../kernel/netlink/socket.ts";
import { silentLogger } from "../../logging/logger.ts";
import { cleanUp } from "./cleanup.ts";

for (const code of ["EPROTONOSUPPORT", "EMFILE"] as const) {
  test(`cleaning up where no socket can be had (${code}) does not reject`, async (t) => {
    t.mock.method(NetlinkSocket, "open", () => {
      throw new NetlinkError(code, `socket: ${code}`);
    });
    const errors: string[] = [];
    await assert.doesNotReject(cleanUp({ ...silentLogger, error: (message) => void errors.push(message) }));
  });
}
