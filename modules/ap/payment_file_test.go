package ap_test

import (
	"context"
	"crypto/sha256"
	"encoding/xml"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/application/pipeline"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
)

// recordingReader reads classes of personal data and keeps what was disclosed to it.
type recordingReader struct {
	reads     []shredding.Class
	disclosed []module.Opened
	err       error
}

func (r *recordingReader) Reads(_ string, class shredding.Class) bool {
	return slices.Contains(r.reads, class)
}

func (r *recordingReader) Disclose(_ context.Context, opened []module.Opened) error {
	r.disclosed = append(r.disclosed, opened...)
	return r.err
}

// paymentFile downloads the bank file of a run.
func (b *books) paymentFile(c pipeline.Caller, run string, reader *recordingReader) (module.BuiltFile, error) {
	b.tb.Helper()
	file, err := b.pipeline.BuildFile(b.tb.Context(), c, pipeline.FileRequest{
		Path: "ap/payment-runs/{run_id}/file", LegalEntity: b.entity, Params: map[string]string{"run_id": run}, Reader: reader,
	})
	problems.Check(b.tb, err)
	return file, err
}

func bankReader() *recordingReader { return &recordingReader{reads: []shredding.Class{shredding.Bank}} }

// exportedRun makes an exported run that pays an invoice to V1 and one to V2, and gives its id and
// the hash of its file.
func (b *books) exportedRun() (run, hash string) {
	b.tb.Helper()
	b.payee("V2")
	one, two := b.posted("invoice", documentPayload("V1", "1", "100", nil)), b.posted("invoice", documentPayload("V2", "1", "50.5", object{"currency": "USD"}))
	run = b.propose("MAIN", nil, object{"invoice_id": one}, object{"invoice_id": two}).Stream.ID
	b.execute("controller:carla", "ap.approve_payment_run", object{"run_id": run})
	return run, b.events(b.execute("treasurer", "ap.export_payment_run", object{"run_id": run}))[0].data["sha256"].(string)
}

func TestPaymentFile(t *testing.T) {
	t.Parallel()
	b := newPayingBooks(t)
	run, hash := b.exportedRun()
	reader, before := bankReader(), b.head()
	b.clock.Advance(time.Hour)
	file, err := b.paymentFile(caller("treasurer"), run, reader)
	require.NoError(t, err)
	require.Equal(t, "payment-run-"+run+".xml", file.Name)
	require.Equal(t, hash, fmt.Sprintf("%x", sha256.Sum256(file.Content)))
	require.NoError(t, xml.Unmarshal(file.Content, new(struct{})))
	require.Contains(t, string(file.Content), iban)
	require.Equal(t, before, b.head(), "a download writes nothing to the books")
	require.Equal(t, []module.Opened{
		{Partition: b.entity.Partition, Subject: "vendor:V1", Class: shredding.Bank, Values: 3},
		{Partition: b.entity.Partition, Subject: "vendor:V2", Class: shredding.Bank, Values: 3},
	}, reader.disclosed)

	// The file shows the accounts of the run, or it is refused.
	b.execute("treasurer", "ap.execute_payment", execution(run+"-P1", nil))
	_, err = b.paymentFile(caller("treasurer"), run, bankReader())
	require.NoError(t, err, "also after an execution")
	b.execute("admin", "ap.configure", object{"bank_accounts": object{"MAIN": object{"iban": payingIBAN, "bic": "ABNANL2AXXX", "currency": "EUR"}}})
	_, err = b.paymentFile(caller("treasurer"), run, bankReader())
	require.Equal(t, "ap.payment_run.file_changed", fault.CodeOf(err), "%v", err)
	f, _ := fault.As(err)
	require.Equal(t, hash, fmt.Sprint(f.Expected))
	b.execute("treasurer", "ap.export_payment_run", object{"run_id": run})
	_, err = b.paymentFile(caller("treasurer"), run, bankReader())
	require.NoError(t, err, "the new export has the hash of the new file")
	b.execute("ap_clerk", "ap.request_bank_change", bankRequest("V1", object{"iban": otherIBAN}))
	_, err = b.paymentFile(caller("treasurer"), run, bankReader())
	require.Equal(t, "ap.vendor.bank_pending", fault.CodeOf(err), "%v", err)
	b.execute("vendor_admin", "ap.approve_bank_change", object{"request_id": "V1-B3", "verification": "called back"})
	_, err = b.paymentFile(caller("treasurer"), run, bankReader())
	require.Equal(t, "ap.payment_run.changed", fault.CodeOf(err), "%v", err)
}

func TestPaymentFile_Refusals(t *testing.T) {
	t.Parallel()
	b := newPayingBooks(t)
	run, _ := b.exportedRun()
	approved := b.propose("MAIN", nil, object{"invoice_id": b.posted("invoice", documentPayload("V1", "9", "1", nil))}).Stream.ID
	b.execute("controller:carla", "ap.approve_payment_run", object{"run_id": approved})
	for name, c := range map[string]struct {
		who, run, code string
		reader         *recordingReader
	}{
		"auditor":                 {"auditor", run, "intent.forbidden", bankReader()},
		"ap_clerk":                {"ap_clerk", run, "intent.forbidden", bankReader()},
		"controller":              {"controller", run, "intent.forbidden", bankReader()},
		"module":                  {"module", run, "intent.forbidden", bankReader()},
		"S4 submitter of a paper": {"treasurer:ap_clerk", run, "sod.same_person", bankReader()},
		"S4 approver of a paper":  {"treasurer:approver", run, "sod.same_person", bankReader()},
		"does not read accounts":  {"treasurer", run, "file.forbidden", &recordingReader{reads: []shredding.Class{shredding.Contact}}},
		"unrecorded disclosure":   {"treasurer", run, "disk.full", &recordingReader{reads: []shredding.Class{shredding.Bank}, err: fault.New(fault.Unavailable, "disk.full", "no space; try again")}},
		"unknown run":             {"treasurer", "nothing", "ap.payment_run.not_found", bankReader()},
		"run that is no id":       {"treasurer", "../" + run, "file.parameter_invalid", bankReader()},
		"run like an account":     {"treasurer", iban, "file.parameter_invalid", bankReader()},
		"run not exported":        {"treasurer", approved, "ap.payment_run.wrong_state", bankReader()},
	} {
		file, err := b.paymentFile(caller(c.who), c.run, c.reader)
		require.Equal(t, c.code, fault.CodeOf(err), "%s: %v", name, err)
		require.NotContains(t, err.Error(), iban)
		if c.reader.err == nil {
			require.Empty(t, c.reader.disclosed, name)
		}
		require.Empty(t, file.Content, name)
	}
	_, err := b.pipeline.BuildFile(t.Context(), caller("treasurer"), pipeline.FileRequest{Path: "ap/secrets", LegalEntity: b.entity})
	require.Equal(t, "file.not_found", fault.CodeOf(err))

	b.keys.erase("vendor:V1")
	_, err = b.paymentFile(caller("treasurer"), run, bankReader())
	require.Equal(t, "ap.vendor.bank_missing", fault.CodeOf(err), "an erased account")
}

// TestPaymentFile_AtOnce refuses more files than a node builds at the same time.
func TestPaymentFile_AtOnce(t *testing.T) {
	t.Parallel()
	b := newPayingBooks(t)
	run, _ := b.exportedRun()
	waiting, goOn, results := make(chan struct{}), make(chan struct{}), make(chan error)
	blocked := &blockingReader{recordingReader: *bankReader(), waiting: waiting, goOn: goOn}
	for range 2 {
		go func() {
			_, err := b.pipeline.BuildFile(context.WithoutCancel(t.Context()), caller("treasurer"), pipeline.FileRequest{
				Path: "ap/payment-runs/{run_id}/file", LegalEntity: b.entity, Params: map[string]string{"run_id": run}, Reader: blocked,
			})
			results <- err
		}()
	}
	<-waiting
	<-waiting
	_, err := b.paymentFile(caller("treasurer"), run, bankReader())
	require.Equal(t, "file.busy", fault.CodeOf(err))
	_, err = b.paymentFile(caller("auditor"), run, bankReader())
	require.Equal(t, "intent.forbidden", fault.CodeOf(err), "who may not is told so first")
	close(goOn)
	require.NoError(t, errors.Join(<-results, <-results))
	_, err = b.paymentFile(caller("treasurer"), run, bankReader())
	require.NoError(t, err)
}

// blockingReader takes disclosures when the test lets it.
type blockingReader struct {
	recordingReader
	waiting chan<- struct{}
	goOn    <-chan struct{}
}

func (r *blockingReader) Disclose(context.Context, []module.Opened) error {
	r.waiting <- struct{}{}
	<-r.goOn
	return nil
}
