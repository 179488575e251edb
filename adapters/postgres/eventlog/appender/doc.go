// Package appender is the append engine, the only code that writes events. Engine.Append puts a
// request into the queue of its partition's appender; a partition is one legal entity. The
// appender, a goroutine, gathers queued requests of its partitions into a group and commits the
// group in one transaction, so that requests share the latency of a commit. The steps have a
// file each:
//
//	engine.go    Engine: its connections, start and close
//	appender.go  Append, and the loop that runs one group after another
//	queue.go     the queued requests, bounded in number and bytes
//	stalled.go   partitions whose lock another session holds; they wait in slots of their own
//	group.go     one transaction: lock the head rows, read, decide, write; reruns and answers
//	lookup.go    facts: the committed rows that the group reads, one statement for each kind
//	decide.go    verdict: accept or refuse a request, against facts and overlay (what requests
//	             that were accepted before it in the group will write)
//	lifecycle.go the states of streams and their access lists
//	key_lease.go the subject keys that values are sealed with stay active until the commit;
//	             external_key_store.go: where the key store is another database
//	write.go     the rows of all accepted requests, one statement for each table
//	commit.go    send the inserts and the commit in one round trip
//	resolve.go   find out whether a commit whose answer was lost has happened
//	notify.go    notify listeners which partitions grew
//
// A group usually takes two round trips. Keys that become known only while it decides, such as
// a stream id with a series number, and an external key store add more.
//
// A partition's head row, its row of backbone.partition_heads, is its lock. A group holds it
// from before it reads the head until its commit, whichever process it runs in. So the next
// group numbers its events after the last committed one: sequences of a partition have no gaps,
// and no event ever appears below a sequence that a reader has seen. There is no order across
// partitions: a reader of several keeps a position in each. The row holds the genesis checksum,
// with which the chain starts, and is never updated, because its dead versions would pile up
// while any old snapshot is open. The head itself is the partition's last event.
//
// A group takes its locks in this order: the head rows by partition id, then leases on subject
// keys, then the locks of its inserts. A group that holds head locks waits for another session
// only briefly, see stalled.go, and never for an eraser. A node that is frozen with locks keeps
// them for Limits.IdleTimeout; then PostgreSQL ends its session, and the node runs the group
// again when it continues.
//
// A refused request leaves nothing behind: it uses up no number of a series and no idempotency
// key. It too is answered only after the commit, because the event that refused it may be one of
// the same group. The engine connects as backbone_app, which may insert events and neither
// change nor delete them. It never opens sealed values.
package appender
