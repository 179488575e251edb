// Package bench measures Backbone against the same PostgreSQL without it. `make bench`
// prints one table; every ratio in it comes from one run, in which the compared variants
// take turns, so that a machine that becomes slower or faster changes all of
// them. The cluster is private, in a temporary folder, with
// fsync and synchronous commit on.
//
// A missed target is reported, not failed: a benchmark is not a test. An error is
// a failure, since it would make the figures worthless.
//
// Environment:
//
//	BACKBONE_BENCH_SECONDS  length of one measurement, default 4 (decimals allowed)
//	BACKBONE_BENCH_ROUNDS   how often the variants take turns, default 3
//	BACKBONE_BENCH_EVENTS   events in the store that is read, default 1000000. They take about
//	                        3.6 KB each with their indexes: 10000000 need 42 GB of free disk
//	                        and about 10 to 15 minutes on two cores, 7000000 stay below 30 GB
//	BACKBONE_BENCH_LINES    journal lines of the trial balance, default 1000000
//	BACKBONE_BENCH_ITEMS    open items of aging, default 100000; a tenth of them is paid
//	BACKBONE_BENCH_GROWTH   events of the large log of the growth section, default 1000000; the
//	                        other log has a tenth, at most 1000000. 30000000 need 60 GB of free
//	                        disk and half an hour
//	BACKBONE_BENCH_PROFILE  folder for CPU profiles of this process (go tool pprof) and for
//	                        the times of PostgreSQL's statements; costs a few percent
//	BACKBONE_BENCH_DIR      folder for the cluster, default the system's for temporary
//	                        files; choose the disk that is to be measured
//
// One section alone: make bench TESTFLAGS='-run TestReport/append' (append, conditions,
// personal, intents, accounting, reads, delivery, projections, rebuild, subscriptions, idle, audit, archive, growth, fanout).
// The last five share books that the first of them fills. The idle section also runs in
// test/e2e, which prints what `backbone dev` and `backbone serve` use without clients.
// The micro-benchmarks of single steps:
//
//	go test -tags bench -run '^$' -bench . ./test/bench
package bench
