package cli_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/adapters/client"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/modules/ap/adapters/cli"
)

// bank is a server with payments, as far as an import of statuses can see it.
type bank struct {
	mu       sync.Mutex
	payments []client.ApPaymentsRow
	answers  map[string]error // by payment
	keys     map[string]client.IntentOutcome
	payloads map[string]string // by payment
}

func (b *bank) ReadApPayments(_ context.Context, params client.ReadApPaymentsParams, _ ...client.Option) (client.ApPaymentsReport, error) {
	if params.Cursor == "" && len(b.payments) > 2 {
		return client.ApPaymentsReport{Rows: b.payments[:2], HasMore: true, NextCursor: "2"}, nil
	}
	return client.ApPaymentsReport{Rows: b.payments[min(2, len(b.payments)):]}, nil
}

func (b *bank) SubmitIntent(_ context.Context, params client.SubmitIntentParams, r client.IntentRequest, options ...client.Option) (client.IntentOutcome, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	var call client.Call
	for _, o := range options {
		o(&call)
	}
	if out, known := b.keys[params.IdempotencyKey]; known {
		*call.Replayed = true
		return out, nil
	}
	var p struct {
		PaymentID string `json:"payment_id"`
		Status    string `json:"status"`
	}
	if err := json.Unmarshal(r.Payload, &p); err != nil {
		return client.IntentOutcome{}, err
	}
	b.payloads[p.PaymentID] = string(r.Payload)
	if err := b.answers[p.PaymentID]; err != nil {
		return client.IntentOutcome{}, err
	}
	out := client.IntentOutcome{IntentID: "I-" + p.PaymentID, Status: "executed"}
	switch p.Status {
	case "ACSC", "ACCC":
		out.Events = []client.IntentEvent{{Type: "payment.executed"}, {Type: "gl.journal.posted"}}
	case "RJCT":
		out.Events = []client.IntentEvent{{Type: "payment.failed"}}
	default:
		out.Events = []client.IntentEvent{{Type: "payment.status_reported"}}
	}
	b.keys[params.IdempotencyKey] = out
	return out, nil
}

func newBank(rows ...client.ApPaymentsRow) *bank {
	return &bank{payments: rows, answers: map[string]error{}, keys: map[string]client.IntentOutcome{}, payloads: map[string]string{}}
}

func statusFile(t *testing.T, body string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.xml")
	require.NoError(t, os.WriteFile(path, []byte(`<Document xmlns="urn:iso:std:iso:20022:tech:xsd:pain.002.001.10"><CstmrPmtStsRpt>
		<GrpHdr><MsgId>BANK 1</MsgId><CreDtTm>2025-03-22T08:00:00Z</CreDtTm></GrpHdr>`+body+`</CstmrPmtStsRpt></Document>`), 0o600))
	return path
}

func runImportStatus(t *testing.T, api cli.StatusAPI, arguments ...string) (report cli.StatusReport, stdout string, err error) {
	t.Helper()
	cmd := cli.ImportStatusCommand(func(string, string) (cli.StatusAPI, error) { return api, nil })
	var out bytes.Buffer
	cmd.SetOut(&out)
	cmd.SetErr(&bytes.Buffer{})
	cmd.SetArgs(append([]string{"--server", "http://x", "--token", "t", "--legal-entity", "DEMF"}, arguments...))
	cmd.SilenceErrors = true
	err = cmd.ExecuteContext(t.Context())
	if slices.Contains(arguments, "--json") && out.Len() > 0 {
		require.NoError(t, json.Unmarshal(out.Bytes(), &report))
	}
	return report, out.String(), err
}

func TestImportStatus(t *testing.T) {
	t.Parallel()
	b := newBank()
	b.answers["R1-P9"] = fault.New(fault.NotFound, "payment.not_found", "no payment has this id")
	b.answers["R1-P3"] = fault.New(fault.Conflict, "payment.already_executed", "the payment was executed before")
	path := statusFile(t, `<OrgnlGrpInfAndSts><OrgnlMsgId>R1</OrgnlMsgId></OrgnlGrpInfAndSts><OrgnlPmtInfAndSts>
		<TxInfAndSts><OrgnlEndToEndId>R1-P1</OrgnlEndToEndId><TxSts>ACSC</TxSts><AccptncDtTm>2025-03-20T10:00:00Z</AccptncDtTm><AcctSvcrRef>BREF</AcctSvcrRef></TxInfAndSts>
		<TxInfAndSts><OrgnlEndToEndId>R1-P2</OrgnlEndToEndId><TxSts>RJCT</TxSts><StsRsnInf><Rsn><Cd>AC04</Cd></Rsn><AddtlInf>DE89370400440532013000 is closed</AddtlInf></StsRsnInf></TxInfAndSts>
		<TxInfAndSts><OrgnlEndToEndId>R1-P3</OrgnlEndToEndId><TxSts>ACCC</TxSts></TxInfAndSts>
		<TxInfAndSts><OrgnlEndToEndId>R1-P4</OrgnlEndToEndId><TxSts>PDNG</TxSts></TxInfAndSts>
		<TxInfAndSts><OrgnlEndToEndId>R1-P9</OrgnlEndToEndId><TxSts>ACSC</TxSts></TxInfAndSts></OrgnlPmtInfAndSts>`)
	report, _, err := runImportStatus(t, b, "--json", path)
	require.Equal(t, cli.ExitRefused, exitCode(t, err))
	require.Equal(t, cli.StatusTotals{Executed: 1, Rejected: 1, Reported: 1, Duplicate: 1, Refused: 1}, report.Totals)
	require.Equal(t, []string{"R1-P9"}, report.Unknown)
	require.True(t, report.Complete)
	require.JSONEq(t, `{"payment_id":"R1-P1","message_id":"BANK 1","status":"ACSC","executed_on":"2025-03-20","bank_reference":"BREF"}`, b.payloads["R1-P1"])
	require.JSONEq(t, `{"payment_id":"R1-P2","message_id":"BANK 1","status":"RJCT","reason_code":"AC04"}`, b.payloads["R1-P2"], "the account is not sent on")
	require.JSONEq(t, `{"payment_id":"R1-P4","message_id":"BANK 1","status":"PDNG"}`, b.payloads["R1-P4"])

	delete(b.answers, "R1-P9")
	b.answers["R1-P9"] = fault.New(fault.FailedPrecondition, "payment.wrong_state", "the payment is failed")
	report, table, err := runImportStatus(t, b, path)
	require.Equal(t, cli.ExitRefused, exitCode(t, err))
	require.Empty(t, report.Payments)
	require.Contains(t, table, "R1-P9")
	require.Contains(t, table, "5 payments of message BANK 1: 0 executed, 0 rejected by the bank, 0 reported, 4 duplicates, 1 refused, 0 pending, 0 failed")
}

// TestImportStatus_WholeFile spreads statuses of the file and of a block over the payments that are
// not named.
func TestImportStatus_WholeFile(t *testing.T) {
	t.Parallel()
	row := func(id, currency, state string) client.ApPaymentsRow {
		return client.ApPaymentsRow{PaymentID: id, Currency: currency, State: state}
	}
	b := newBank(row("R1-P1", "JPY", "excluded"), row("R1-P2", "EUR", "exported"), row("R1-P3", "JPY", "exported"), row("R1-P4", "EUR", "executed"), row("R1-P5", "EUR", "exported"))
	report, _, err := runImportStatus(t, b, "--json", statusFile(t, `<OrgnlGrpInfAndSts><OrgnlMsgId>R1</OrgnlMsgId><GrpSts>ACSC</GrpSts></OrgnlGrpInfAndSts>
		<OrgnlPmtInfAndSts><OrgnlPmtInfId>R1-2</OrgnlPmtInfId><PmtInfSts>RJCT</PmtInfSts><StsRsnInf><Rsn><Cd>AM04</Cd></Rsn></StsRsnInf></OrgnlPmtInfAndSts>
		<OrgnlPmtInfAndSts><OrgnlPmtInfId>R1-1</OrgnlPmtInfId><TxInfAndSts><OrgnlEndToEndId>R1-P5</OrgnlEndToEndId><TxSts>ACSP</TxSts></TxInfAndSts></OrgnlPmtInfAndSts>`))
	require.NoError(t, err)
	got := map[string]string{}
	for _, p := range report.Payments {
		got[p.PaymentID] = p.BankStatus + " " + p.ReasonCode + " " + p.Event
	}
	require.Equal(t, map[string]string{"R1-P2": "ACSC  payment.executed", "R1-P3": "RJCT AM04 payment.failed", "R1-P5": "ACSP  payment.status_reported"}, got)
	require.Contains(t, b.payloads["R1-P2"], `"executed_on":"2025-03-22","bank_reference":"BANK 1"`, "the day and id of the report")

	none, _, err := runImportStatus(t, newBank(), "--json", statusFile(t, `<OrgnlGrpInfAndSts><OrgnlMsgId>R1</OrgnlMsgId><GrpSts>PART</GrpSts></OrgnlGrpInfAndSts>`))
	require.NoError(t, err)
	require.Empty(t, none.Payments)
}

func TestImportStatus_Failures(t *testing.T) {
	t.Parallel()
	good := statusFile(t, `<OrgnlGrpInfAndSts><OrgnlMsgId>R1</OrgnlMsgId></OrgnlGrpInfAndSts><OrgnlPmtInfAndSts>
		<TxInfAndSts><OrgnlEndToEndId>R1-P1</OrgnlEndToEndId><TxSts>ACSC</TxSts></TxInfAndSts><TxInfAndSts><OrgnlEndToEndId>R1-P2</OrgnlEndToEndId><TxSts>ACSC</TxSts></TxInfAndSts></OrgnlPmtInfAndSts>`)
	b := newBank()
	b.answers["R1-P1"] = fault.New(fault.Forbidden, "intent.forbidden", "none of your roles may submit this")
	report, _, err := runImportStatus(t, b, "--json", "--parallel", "1", good)
	require.Equal(t, cli.ExitUnfinished, exitCode(t, err), "a caller without the role gets the same answer for every payment")
	require.Equal(t, 2, report.Totals.Failed)
	require.ErrorContains(t, err, "intent.forbidden")

	for name, arguments := range map[string][]string{
		"no file": {}, "two files": {good, good}, "missing file": {filepath.Join(t.TempDir(), "none.xml")},
		"no report": {statusFile(t, "")}, "parallel": {"--parallel", "0", good},
	} {
		_, _, err := runImportStatus(t, newBank(), arguments...)
		require.Equal(t, cli.ExitUnfinished, exitCode(t, err), name)
	}
	_, _, err = runImportStatus(t, newBank(), good, "--help")
	require.NoError(t, err)
}
