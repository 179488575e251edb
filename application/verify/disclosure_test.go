package verify_test

import (
	"context"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/verify"
	"github.com/erpbackbone/backbone/domain/disclosure"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/ports"
)

// editedAccesses shows other accesses than were stored.
type editedAccesses struct {
	*tamperedLog
	all []disclosure.Access
}

func (r editedAccesses) Accesses(_ context.Context, _ event.PartitionID, from, to time.Time) iter.Seq2[disclosure.Access, error] {
	return func(yield func(disclosure.Access, error) bool) {
		for _, a := range r.all {
			if !a.At.Before(from) && a.At.Before(to) && !yield(a, nil) {
				return
			}
		}
	}
}

// TestRun_Accesses compares the record of reads with the administrative log.
func TestRun_Accesses(t *testing.T) {
	t.Parallel()
	var all []disclosure.Access // one an hour
	for i := range 4 {
		all = append(all, disclosure.Access{ID: event.ID{15: byte(i)}, At: start.Add(time.Duration(i) * time.Hour), PersonID: "p-1", Kind: disclosure.Export})
	}
	period := func(i int, deletedThrough event.Version) disclosure.Period {
		d := disclosure.NewDigest()
		d.Add(&all[i])
		sum := d.Sum()
		return disclosure.Period{From: all[i].At, To: all[i].At.Add(time.Hour), Accesses: 1, SHA256: hex.EncodeToString(sum[:]), DeletedThrough: deletedThrough}
	}
	plain := []disclosure.Period{period(0, 0), period(1, 0), period(2, 0)}
	for name, c := range map[string]struct {
		periods []disclosure.Period
		wait    time.Duration // before the last of them is recorded
		edit    func([]disclosure.Access) []disclosure.Access
		want    []place
	}{
		"as recorded": {plain, 0, func(rows []disclosure.Access) []disclosure.Access { return rows }, []place{}},
		"edited": {plain, 0, func(rows []disclosure.Access) []disclosure.Access {
			rows[1].PersonID = "p-2"
			return rows
		}, []place{{verify.AccessMismatch, 2}}},
		"deleted": {plain, 0, func(rows []disclosure.Access) []disclosure.Access { return rows[1:] }, []place{{verify.AccessMismatch, 1}}},
		"inserted": {plain, 0, func(rows []disclosure.Access) []disclosure.Access {
			return slices.Insert(rows, 1, disclosure.Access{ID: event.ID{9}, At: rows[0].At})
		}, []place{{verify.AccessMismatch, 1}}},
		"moved to the present hour": {plain, 0, func(rows []disclosure.Access) []disclosure.Access {
			rows[2].At = rows[3].At
			return rows
		}, []place{{verify.AccessMismatch, 3}}},
		"a period is left out": {[]disclosure.Period{period(0, 0), period(2, 0)}, 0, func(rows []disclosure.Access) []disclosure.Access { return rows }, []place{{verify.AccessMismatch, 2}}},
		"deleted after the retention": {[]disclosure.Period{period(0, 0), period(1, 0), period(2, 2)}, disclosure.MinRetention + 2*time.Hour,
			func(rows []disclosure.Access) []disclosure.Access { return rows[2:] }, []place{}},
		"deleted before": {[]disclosure.Period{period(0, 0), period(1, 0), period(2, 2)}, time.Hour,
			func(rows []disclosure.Access) []disclosure.Access { return rows[2:] }, []place{{verify.AccessMismatch, 1}, {verify.AccessMismatch, 2}, {verify.AccessMismatch, 3}}},
		"deletion of what was not recorded": {[]disclosure.Period{period(0, 3)}, disclosure.MinRetention + 2*time.Hour,
			func(rows []disclosure.Access) []disclosure.Access { return rows }, []place{{verify.AccessMismatch, 1}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := newVault()
			log, err := v.CreateLegalEntity(t.Context(), ports.LegalEntity{TenantID: "acme", Code: ports.AdministrativeCode})
			require.NoError(t, err)
			for i, p := range c.periods {
				if i == len(c.periods)-1 {
					v.clock.Advance(c.wait)
				}
				e := v.prepared(log)
				e.Type, e.Stream = disclosure.AccessRecorded, disclosure.AccessStream
				data, err := json.Marshal(p)
				require.NoError(t, err)
				e.Payload = fmt.Appendf(nil, `{"data":%s,"dimensions":{},"entity_refs":[]}`, data)
				e.PayloadHash = event.HashPayload(e.Salt, e.Payload)
				_, err = v.Append(t.Context(), ports.AppendRequest{Partition: log.Partition, Events: []event.Prepared{e}})
				require.NoError(t, err)
			}
			reports, err := verify.Run(t.Context(), editedAccesses{v, c.edit(slices.Clone(all))}, "acme", []string{ports.AdministrativeCode}, nil)
			require.NoError(t, err)
			require.Len(t, reports, 1)
			got := places(reports[0])
			slices.SortFunc(got, func(a, b place) int { return int(a.Sequence) - int(b.Sequence) })
			require.Equal(t, c.want, got)
		})
	}
}
