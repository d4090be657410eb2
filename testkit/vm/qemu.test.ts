/** Debian's kernel in qemu: a second kernel with nftables. Part of `npm run test:all`. */
import "../needs/qemu.ts";
import { testInMachine } from "./machine-tests.ts";

testInMachine("qemu");
