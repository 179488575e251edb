package appender_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/erpbackbone/backbone/adapters/postgres/internal/pgtest"
	"github.com/erpbackbone/backbone/ports"
)

// BenchmarkAppendPersonal is BenchmarkAppend with one sealed value in every event,
// and the same events without.
func BenchmarkAppendPersonal(b *testing.B) {
	for _, callers := range []int{1, 64} {
		for _, layout := range []string{"none", "one_database", "key_store_apart"} {
			b.Run(fmt.Sprintf("callers=%d/sealed=%s", callers, layout), func(b *testing.B) {
				dsn := pgtest.Database(b)
				keysDSN := dsn
				if layout == "key_store_apart" {
					keysDSN = pgtest.KeyStoreDatabase(b)
				}
				s := pgtest.Open(b, dsn, pgtest.WithKeyStore(keysDSN))
				books := pgtest.NewPartitions(b, s, min(callers, 4))
				conn := pgtest.Connect(b, keysDSN)
				subjects := make([]string, callers)
				for i := range subjects {
					subjects[i] = fmt.Sprintf("employee:E-%d", i)
					if _, err := conn.Exec(b.Context(), pgtest.MintKey, pgtest.KeyArguments(pgtest.KeyID(books[i%len(books)], subjects[i]))...); err != nil {
						b.Fatal(err)
					}
				}
				var next atomic.Int64
				var wg sync.WaitGroup
				b.ReportAllocs()
				b.ResetTimer()
				for caller := range callers {
					wg.Go(func() {
						for next.Add(1) <= int64(b.N) {
							var r ports.AppendRequest
							if p := books[caller%len(books)]; layout == "none" {
								r = pgtest.Personal(p)
							} else {
								r = pgtest.Personal(p, subjects[caller])
							}
							if _, err := s.Appender.Append(context.Background(), r); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				wg.Wait()
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
			})
		}
	}
}
