package ap

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/event"
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
	settings, err := loadSettings(ctx, s)
	if err != nil {
		return module.Plan{}, err
	}
	account, known := settings.BankAccounts[run.BankAccount]
	if !known {
		return module.Plan{}, bankAccountNotFoundFault()
	}
	creditors, err := openCreditors(ctx, s, run)
	if err != nil {
		return module.Plan{}, err
	}
	message, err := PaymentMessage(run, account, in.LegalEntity.Name, creditors)
	if err != nil {
		return module.Plan{}, err
	}
	file, err := pain.Write(message)
	if err != nil {
		return module.Plan{}, err
	}
	f := paymentFacts{facts: factsOf(in)}
	for i := range run.Payments {
		for _, a := range run.Payments[i].Applications {
			d, err := loadDocument(ctx, s, kindOf(a.DocumentRef), a.ID())
			if err != nil {
				return module.Plan{}, err
			}
			f.Submitters = append(append(f.Submitters, d.Submitters...), d.Approvers...)
		}
		f.Submitters = domain.DistinctSteps(f.Submitters)
	}
	hash := sha256.Sum256(file)
	exported := runDraft(in, p.RunID, contract.EventRunExported, contract.PaymentRunExported{
		RunID: p.RunID, MessageID: message.ID, SHA256: hex.EncodeToString(hash[:]), Count: len(message.Transfers), ControlSum: message.ControlSum(),
	})
	exported.CausedBy = run.EventID
	return module.Plan{Events: []event.Draft{exported}, Facts: &f, CorrelationID: run.CorrelationID}, nil
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
