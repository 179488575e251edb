package cli_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/modules/gl/adapters/cli"
)

// longLedger answers with many journals of two lines, and measures the memory that is in use
// early and late.
type longLedger struct {
	pages       int
	early, late uint64
}

func (l *longLedger) ReadModel(_ context.Context, path string, query url.Values, out any, _ ...client.Option) error {
	var text string
	switch path {
	case "gl/accounts":
		text = `{"header": {"as_of": "2026-12-31", "sequence": "1000000", "currency": "EUR"}, "rows": [{"account": "1000", "postable": true}, {"account": "4000", "postable": true}]}`
	case "gl/trial-balance":
		total := strconv.Itoa(l.pages*500) + ".00"
		text = fmt.Sprintf(`{"accounts": [{"account": "1000", "opening": "0.00", "balance": %[1]q}, {"account": "4000", "opening": "0.00", "balance": "-%[2]s"}], "total_debit": %[1]q, "total_credit": %[1]q}`, total, total)
	case "gl/journal-lines":
		page, _ := strconv.Atoi(query.Get("cursor"))
		if page == 10 {
			l.early = heap()
		}
		next := ""
		if page+1 < l.pages {
			next = strconv.Itoa(page + 1)
		} else {
			l.late = heap()
		}
		var rows []string
		for i := range 500 {
			sequence := page*500 + i + 1
			for line, side := range []string{"debit", "credit"} {
				rows = append(rows, fmt.Sprintf(`{"journal_number": "GJ-2026-%06[1]d", "effective_date": "2026-03-01", "recorded_at": "2026-03-01T00:00:00.000000Z", "type": "general", "line_number": %[2]d, "account": %[3]q,
					"side": %[4]q, "amount": "1.00", "currency": "EUR", "functional_amount": "1.00", "functional_currency": "EUR", "dimensions": {}, "event_id": "E%[1]d", "sequence": "%[1]d"}`, sequence, line+1, []string{"1000", "4000"}[line], side))
			}
		}
		text = `{"rows": [` + strings.Join(rows, ",") + `], "next_cursor": ` + strconv.Quote(next) + `}`
	default:
		text = `{"rows": []}`
	}
	return json.Unmarshal([]byte(text), out)
}

func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func (*longLedger) ReadStream(context.Context, string, string, client.ReadStreamParams, ...client.Option) (client.StreamPage, error) {
	return client.StreamPage{}, nil
}

func (*longLedger) ListEvents(context.Context, client.ListEventsParams, ...client.Option) (client.EventPage, error) {
	return client.EventPage{}, nil
}

func (*longLedger) ListLegalEntities(context.Context, ...client.Option) (client.LegalEntityList, error) {
	return client.LegalEntityList{}, nil
}

// TestMemory exports forty thousand lines: four times as many as when it first measures, but no
// more memory is in use. It runs alone, since other tests use memory too.
func TestMemory(t *testing.T) { //nolint:paralleltest // it measures the memory of the process
	named := company
	named.Name = "Demo"
	for name, export := range map[string]func(cli.API, cli.Options) error{
		"saf-t": func(api cli.API, o cli.Options) error {
			_, err := cli.WriteSAFT(t.Context(), api, io.Discard, o, named)
			return err
		},
		"gobd": func(api cli.API, o cli.Options) error {
			_, err := cli.WriteGoBD(t.Context(), api, t.TempDir()+"/z3", o, named)
			return err
		},
		"hledger": func(api cli.API, o cli.Options) error {
			_, err := cli.WriteHledger(t.Context(), api, io.Discard, o, true)
			return err
		},
	} {
		l := &longLedger{pages: 40}
		require.NoError(t, export(l, cli.Options{LegalEntity: "DEMF", From: "2026-01-01", AsOf: "2026-12-31"}), name)
		require.Less(t, l.late, l.early+4<<20, name)
	}
}
