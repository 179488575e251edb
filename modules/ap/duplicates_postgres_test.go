package ap_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/fault"
)

// TestDuplicates_OnPostgres lets 20 clients submit one paper at the same time, in different forms of its
// number: one document comes of it, which the refusals name. Then 8 clients submit papers with numbers of
// their own and the figures of a rejected document: all but one are held.
func TestDuplicates_OnPostgres(t *testing.T) {
	t.Parallel()
	b := newPostgresBooks(t)
	submit := func(numbers []string, amount string) (accepted []pipeline.Outcome, refused []*fault.Error) {
		outcomes, errs := make([]pipeline.Outcome, len(numbers)), make([]error, len(numbers))
		var wg sync.WaitGroup
		for i, number := range numbers {
			wg.Go(func() {
				outcomes[i], errs[i] = b.Submit("ap_clerk", "ap.submit_invoice", `{"vendor_id":"V1","invoice_number":"`+number+`","invoice_date":"2026-01-10","currency":"EUR","total_amount":`+amount+
					`,"lines":[{"line_number":1,"amount":`+amount+`,"account":"6000"}]}`)
			})
		}
		wg.Wait()
		for i, err := range errs {
			if err == nil {
				accepted = append(accepted, outcomes[i])
				continue
			}
			f, ok := fault.As(err)
			require.True(t, ok, "%v", err)
			refused = append(refused, f)
		}
		return accepted, refused
	}
	forms := make([]string, 20)
	for i := range forms {
		forms[i] = []string{"RE-2026 17", "re-202617", "ＲＥ－２０２６１７", " Re-2026\u00a017"}[i%4]
	}
	accepted, refused := submit(forms, "100")
	require.Len(t, accepted, 1)
	for _, f := range refused {
		require.Equal(t, "ap.invoice.duplicate", f.Code, "%v", f)
		require.Equal(t, accepted[0].Events[0].ID.String(), f.Holder.EventID)
	}

	earlier, _ := submit([]string{"FIRST"}, "50")
	b.Execute("approver", "ap.reject_invoice", `{"invoice_id":"`+earlier[0].Events[0].Stream.ID+`","reason":"not ordered"}`)
	numbers := strings.Fields("A B C D E F G H")
	accepted, refused = submit(numbers, "50")
	require.Empty(t, refused, fmt.Sprint(refused))
	valid := 0
	for _, out := range accepted {
		if b.Event(out.Events[1].Sequence).Type == "ap.invoice.validated" {
			valid++
		}
	}
	require.Equal(t, 1, valid)
}
