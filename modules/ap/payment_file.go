package ap

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
	"github.com/erpbackbone/backbone/modules/ap/pain"
)

// planExportRun plans the bank file of an approved run. The event has the hash of the file and its
// totals: the file itself has account numbers in clear, and is made again from the same state.
func planExportRun(ctx context.Context, in module.Input, s module.State, p contract.PaymentRunDecision) (module.Plan, error) {
	run, err := loadRun(ctx, s, p.RunID)
	if err != nil {
		return module.Plan{}, err
	}
	if err := run.RequireState(domain.RunApproved, domain.RunExported); err != nil {
		return module.Plan{}, err
	}
	f := paymentFacts{facts: factsOf(in)}
	if f.Submitters, err = documentSteps(ctx, s, run); err != nil {
		return module.Plan{}, err
	}
	message, file, err := bankFile(ctx, in, s, run)
	if err != nil {
		return module.Plan{}, err
	}
	hash := sha256.Sum256(file)
	exported := runDraft(in, p.RunID, contract.EventRunExported, contract.PaymentRunExported{
		RunID: p.RunID, MessageID: message.ID, SHA256: hex.EncodeToString(hash[:]), Count: len(message.Transfers), ControlSum: message.ControlSum(),
	})
	exported.CausedBy = run.EventID
	return module.Plan{Events: []event.Draft{exported}, Facts: &f, CorrelationID: run.CorrelationID}, nil
}

// paymentFile declares the download of the bank file of an exported run.
func paymentFile() module.File {
	return module.File{
		Type: "ap.payment_file", Name: "payment-runs/{run_id}/file", MediaType: "application/xml", Policy: paymentPolicy,
		Description: "The bank file of an exported payment run, pain.001.001.09. Its SHA-256 is that of ap.payment_run.exported.",
		Params:      []module.Param{{Name: "run_id", Type: module.ParamString, InPath: true, Description: "id of the run"}},
		Opens:       []shredding.Class{shredding.Bank}, Build: module.FileOf(buildPaymentFile),
		Command: "payment-file", Example: "01KWXYZ8M3V2N5Q7R9T1B4C6D8 -o run.xml",
	}
}

// buildPaymentFile makes the bank file of a run again. What has changed since the export, such as
// the account to pay from, shows in the hash: ap.payment_run.file_changed.
func buildPaymentFile(ctx context.Context, in module.Input, s module.State, p contract.PaymentRunDecision) (module.BuiltFile, error) {
	run, err := loadRun(ctx, s, p.RunID)
	if err != nil {
		return module.BuiltFile{}, err
	}
	if err := run.RequireState(domain.RunExported); err != nil {
		return module.BuiltFile{}, err
	}
	f := paymentFacts{facts: factsOf(in)}
	if f.Submitters, err = documentSteps(ctx, s, run); err != nil {
		return module.BuiltFile{}, err
	}
	_, file, err := bankFile(ctx, in, s, run)
	if err != nil {
		return module.BuiltFile{}, err
	}
	hash := sha256.Sum256(file)
	if got := hex.EncodeToString(hash[:]); got != run.Exported.SHA256 {
		return module.BuiltFile{}, fault.New(fault.FailedPrecondition, "ap.payment_run.file_changed",
			"the file cannot be made as it was exported, since an account or a name in it has changed; export the run again, and send the new file only if the bank has not taken the old one").
			WithNumbers(run.Exported.SHA256, got)
	}
	return module.BuiltFile{Name: "payment-run-" + run.RunID + ".xml", Content: file, Facts: &f}, nil
}

// documentSteps tells who submitted and approved the documents of a run.
func documentSteps(ctx context.Context, s module.State, run *domain.PaymentRun) (steps []domain.Step, err error) {
	for i := range run.Payments {
		for _, a := range run.Payments[i].Applications {
			d, err := loadDocument(ctx, s, kindOf(a.DocumentRef), a.ID())
			if err != nil {
				return nil, err
			}
			steps = append(append(steps, d.Submitters...), d.Approvers...)
		}
		steps = domain.DistinctSteps(steps)
	}
	return steps, nil
}

// bankFile makes the bank file of a run from the present accounts. Faults: ap.bank_account.not_found
// and those of openCreditors.
func bankFile(ctx context.Context, in module.Input, s module.State, run *domain.PaymentRun) (*pain.Message, []byte, error) {
	settings, err := loadSettings(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	account, known := settings.BankAccounts[run.BankAccount]
	if !known {
		return nil, nil, bankAccountNotFoundFault()
	}
	creditors, err := openCreditors(ctx, s, run)
	if err != nil {
		return nil, nil, err
	}
	message, err := PaymentMessage(run, account, cmp.Or(in.LegalEntity.Name, in.LegalEntity.Code), creditors)
	if err != nil {
		return nil, nil, err
	}
	file, err := pain.Write(message)
	return message, file, err
}

// openCreditors opens the accounts of a run's vendors, by payment. Faults: ap.vendor.blocked,
// ap.vendor.bank_pending, ap.vendor.bank_missing, ap.payment_run.changed.
func openCreditors(ctx context.Context, s module.State, run *domain.PaymentRun) (map[string]pain.Account, error) {
	creditors := make(map[string]pain.Account, len(run.Payments))
	for i := range run.Payments {
		p := &run.Payments[i]
		sealed, err := payableAccount(ctx, s, p)
		if err != nil {
			return nil, err
		}
		if creditors[p.PaymentID], err = openAccount(ctx, s, p, &sealed); err != nil {
			return nil, err
		}
	}
	return creditors, nil
}

// PaymentMessage makes the bank file of a run from the account it pays from, the name of the legal
// entity, and the accounts it pays to, by payment. A reader of the accounts makes the same
// bytes with pain.Write as the export did, and compares them with the hash of its event.
func PaymentMessage(run *domain.PaymentRun, debtor contract.PayingAccount, legalEntity string, creditors map[string]pain.Account) (*pain.Message, error) {
	m := &pain.Message{
		ID: run.RunID, Created: run.ApprovedAt, Initiator: legalEntity, Execute: run.PayDate,
		Debtor: pain.Account{Holder: debtor.Holder, IBAN: debtor.IBAN, BIC: debtor.BIC},
	}
	for i := range run.Payments {
		p := &run.Payments[i]
		currency, err := money.LookupCurrency(p.Currency, run.PayDate.Time())
		if err != nil {
			return nil, err
		}
		var numbers []string
		for _, a := range p.Applications {
			numbers = append(numbers, a.Number)
		}
		m.Transfers = append(m.Transfers, pain.Transfer{
			ID: p.PaymentID, Currency: p.Currency, MinorUnit: currency.MinorUnit, Amount: p.Amount, Creditor: creditors[p.PaymentID], Remittance: strings.Join(numbers, " "),
		})
	}
	return m, nil
}

// openAccount opens a vendor's account: ap.vendor.bank_missing if a part of it was erased.
func openAccount(ctx context.Context, s module.State, p *contract.ProposedPayment, a *domain.BankAccount) (pain.Account, error) {
	parts := map[string]json.RawMessage{}
	for name, value := range map[string]json.RawMessage{"iban": a.IBAN, "account": a.Account, "bank": a.Bank, "bic": a.BIC, "holder": a.Holder} {
		if len(value) > 0 {
			parts[name] = value
		}
	}
	document, err := json.Marshal(parts)
	if err != nil {
		return pain.Account{}, err
	}
	opened, err := s.Open(ctx, document)
	if err != nil {
		return pain.Account{}, err
	}
	var values map[string]string
	if err := json.Unmarshal(opened, &values); err != nil {
		return pain.Account{}, err
	}
	for _, value := range values {
		if redacted, _ := json.Marshal(value); string(redacted) == shredding.Redacted {
			return pain.Account{}, domain.BankMissingFault(p.VendorID, p.Currency)
		}
	}
	return pain.Account{Holder: values["holder"], IBAN: values["iban"], Number: values["account"], BIC: values["bic"], Bank: values["bank"]}, nil
}
