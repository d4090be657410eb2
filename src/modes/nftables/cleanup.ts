/** Removes the tables of the nftables mode, in either layout. */

import type { CleanUp } from "../../contract/dataplane.ts";
import { deleteTables } from "../../kernel/nftables/delete-tables.ts";
import { TABLE } from "./names.ts";

/** Deletes the tables of both families. Succeeds on a kernel without nf_tables. */
export const cleanUp: CleanUp = (log) => deleteTables(TABLE, log);
