package ap_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/adapters/einvoice"
	"github.com/erpbackbone/backbone/test/testkit"
)

// payload reads a payload that another package encoded.
func payload(tb testing.TB, raw json.RawMessage, err error) object {
	tb.Helper()
	require.NoError(tb, err)
	d := json.NewDecoder(strings.NewReader(string(raw)))
	d.UseNumber()
	var out object
	require.NoError(tb, d.Decode(&out))
	return out
}

// TestRealDocuments takes the standard's example files through registration,
// submission, release of holds, approval and posting.
func TestRealDocuments(t *testing.T) {
	t.Parallel()
	dir := testkit.SharedData(t, "en16931/ubl/examples")
	paths, err := filepath.Glob(filepath.Join(dir, "*.xml"))
	require.NoError(t, err)
	more, err := filepath.Glob(filepath.Join(dir, "*.XML"))
	require.NoError(t, err)
	paths = append(paths, more...)
	slices.Sort(paths)
	b := newBooks(t)
	b.realBooks()
	status := map[string]int{}
	vendors := map[string]bool{}
	holds := map[string]int{}
	for _, path := range paths {
		file, err := os.Open(path)
		require.NoError(t, err)
		d, err := einvoice.Read(file)
		require.NoError(t, file.Close())
		require.NoError(t, err, path)
		vendor := ""
		raw, err := d.VendorPayload(30)
		out, err := b.submit("importer", "ap.register_vendor", payload(t, raw, err))
		switch f, _ := fault.As(err); {
		case err == nil:
			vendor = out.Events[0].Stream.ID
		case f.Code == "ap.vendor.duplicate":
			vendor = f.Holder.DocumentID
		default:
			require.NoError(t, err, path)
		}
		vendors[vendor] = true
		raw, err = d.IntentPayload(einvoice.Submission{VendorID: vendor})
		submitted, err := b.submit("importer", d.Intent(), payload(t, raw, err))
		if f, ok := fault.As(err); ok && strings.HasSuffix(f.Code, ".duplicate") {
			if f.Attributes["totals_agree"] == true {
				status["duplicate"]++
			} else {
				status["refused"]++
			}
			continue
		}
		require.NoError(t, err, path)
		events := b.events(submitted)
		kind := strings.TrimSuffix(strings.TrimPrefix(events[0].Type, "ap."), ".submitted")
		status[kind]++
		for _, e := range events {
			if id, held := e.data["hold_id"]; held {
				holds[e.data["kind"].(string)]++
				b.execute("approver", "ap.release_hold", object{"hold_id": id, "reason": "checked against the paper"})
			}
		}
		approved := b.events(b.execute("cfo", "ap.approve_"+kind, object{kind + "_id": events[0].Stream.ID}))
		require.Equal(t, "ap."+kind+".posted", approved[2].Type)
		functionalTotals(t, approved[1])
	}
	require.Equal(t, map[string]int{"invoice": 13, "credit_memo": 2, "duplicate": 3, "refused": 1}, status)
	require.Len(t, vendors, 13)
	// None of them names this legal entity. Two sellers share the VAT id DK16356706.
	require.Equal(t, map[string]int{"BUYER_DIFFERS": 15, "PAYEE_DIFFERS": 2, "PREPAID_UNMATCHED": 3, "SELLER_DIFFERS": 1}, holds)
}
