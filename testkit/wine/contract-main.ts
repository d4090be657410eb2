/** What Node.js for Windows runs under Wine: the contracts of Windows-only interfaces. */
import "./hcn-contract-main.ts";
import { runNetshContract } from "../../src/dataplane/userspace/testing/netsh-contract.ts";
import { windowsNetsh } from "../../src/dataplane/userspace/windows-host.ts";

runNetshContract({ name: "under Wine", host: windowsNetsh, interfaceName: process.env.CONTRACT_INTERFACE ?? "" });
