package domain

import (
	"encoding/json"
	"fmt"
	"maps"
	"strconv"
	"strings"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/modules/ap/contract"
)

// BankAccount is an account of a vendor as it was requested, and approved unless it waits. Its
// values are sealed copies, which a planner opens with State.Open, or "[REDACTED]".
type BankAccount struct {
	RequestID     string
	EventID       event.ID // of the request
	CorrelationID string
	Currency      string
	IBAN          json.RawMessage `json:",omitempty"`
	Account       json.RawMessage `json:",omitempty"` // where there is no IBAN
	Bank          json.RawMessage `json:",omitempty"`
	BIC           json.RawMessage `json:",omitempty"`
	Holder        json.RawMessage `json:",omitempty"`
	Requester     Step
	Approver      Step // of an approved account
}

// Number is the sealed IBAN, or account number where there is none.
func (a *BankAccount) Number() json.RawMessage {
	if len(a.IBAN) > 0 {
		return a.IBAN
	}
	return a.Account
}

// Steps are those of the persons who requested and approved the account. By rule S5 none of them
// approves a payment to it.
func (a *BankAccount) Steps() []Step { return []Step{a.Requester, a.Approver} }

// NextRequestID is the id of the vendor's next request. It begins with the vendor's id, so that
// VendorOfRequest finds the vendor.
func (v *Vendor) NextRequestID() string {
	return v.Master.VendorID + requestMark + strconv.Itoa(v.BankRequests+1)
}

const requestMark = "-B"

// VendorOfRequest is the vendor's id in the id of a request, "" if it names none.
func VendorOfRequest(requestID string) string {
	return requestID[:max(strings.LastIndex(requestID, requestMark), 0)]
}

// PayableAccount is the account that payments in a currency go to. Faults:
// ap.vendor.bank_pending while a request is open, ap.vendor.bank_missing without an account.
// Whether an account was erased shows when it is opened.
func (v *Vendor) PayableAccount(currency string) (BankAccount, error) {
	if v.BankRequest != nil {
		return BankAccount{}, BankPendingFault(v.BankRequest.RequestID)
	}
	a, found := v.BankAccounts[currency]
	if !found || string(a.Number()) == shredding.Redacted || len(a.Number()) == 0 {
		return BankAccount{}, BankMissingFault(v.Master.VendorID, currency)
	}
	return a, nil
}

// BankPendingFault refuses what must wait for the decision on a bank account.
func BankPendingFault(requestID string) error {
	return fault.New(fault.FailedPrecondition, "ap.vendor.bank_pending",
		"a change of the vendor's bank account waits for a decision; decide it with ap.approve_bank_change or ap.reject_bank_change").With("request_id", requestID)
}

// BankMissingFault refuses a payment to a vendor without an account, or with an erased one.
func BankMissingFault(vendorID, currency string) error {
	return fault.New(fault.FailedPrecondition, "ap.vendor.bank_missing",
		"the vendor has no bank account for payments in %s, or it was erased; ask the vendor and send ap.request_bank_change", currency).
		With("vendor_id", vendorID).With("currency", currency)
}

// applyBank folds an event about a bank account.
func (v *Vendor) applyBank(e event.Recorded, data []byte) error {
	var d struct {
		RequestID string          `json:"request_id"`
		Currency  string          `json:"currency"`
		IBAN      json.RawMessage `json:"iban"`
		Account   json.RawMessage `json:"account"`
		Bank      json.RawMessage `json:"bank"`
		BIC       json.RawMessage `json:"bic"`
		Holder    json.RawMessage `json:"holder"`
	}
	if err := json.Unmarshal(data, &d); err != nil {
		return fmt.Errorf("bank account of a vendor: %w", err)
	}
	if e.Type == contract.EventBankRequested {
		step, err := stepOf("bank_requested", e)
		if err != nil {
			return err
		}
		v.BankRequests++
		v.BankRequest = &BankAccount{
			RequestID: d.RequestID, EventID: e.ID, CorrelationID: e.CorrelationID, Currency: d.Currency, Requester: step,
			IBAN: SealedOnly(d.IBAN), Account: SealedOnly(d.Account), Bank: SealedOnly(d.Bank), BIC: SealedOnly(d.BIC), Holder: SealedOnly(d.Holder),
		}
		return nil
	}
	if v.BankRequest == nil || v.BankRequest.RequestID != d.RequestID {
		return nil
	}
	if e.Type == contract.EventBankChanged {
		step, err := stepOf("bank_approved", e)
		if err != nil {
			return err
		}
		approved := *v.BankRequest
		approved.Approver = step
		if v.BankAccounts == nil {
			v.BankAccounts = map[string]BankAccount{}
		}
		v.BankAccounts[approved.Currency] = approved
	}
	v.BankRequest = nil
	return nil
}

// cloneBank makes the bank accounts of a clone its own. A request never changes.
func (v *Vendor) cloneBank() { v.BankAccounts = maps.Clone(v.BankAccounts) }

// ComparePayee compares the accounts on a paper with approved account numbers in their normal
// form, and returns the document's payee_bank. The mark "[REDACTED]" is no account.
func ComparePayee(accounts, approved []string) string {
	known := map[string]bool{}
	for _, number := range approved {
		if `"`+number+`"` != shredding.Redacted {
			known[number] = true
		}
	}
	if len(known) == 0 || len(accounts) == 0 {
		return contract.PayeeBankNone
	}
	for _, number := range accounts {
		if !known[NormalAccount(number)] {
			return contract.PayeeBankMismatch
		}
	}
	return contract.PayeeBankMatch
}
