// Package witness lets a witness be asked over HTTP, by the protocol of c2sp.org/tlog-witness: [Server] answers for
// a [Witness] whose state is a [Folder], and [Client] asks one.
package witness
