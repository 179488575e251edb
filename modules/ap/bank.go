package ap

import (
	"context"
	"encoding/json"
	"maps"
	"slices"

	"github.com/erpbackbone/backbone/application/module"
	"github.com/erpbackbone/backbone/domain/eventtype"
	"github.com/erpbackbone/backbone/domain/fault"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/domain/shredding"
	"github.com/erpbackbone/backbone/modules/ap/contract"
	"github.com/erpbackbone/backbone/modules/ap/domain"
)

// bankDeclarations are the event types and intents of vendors' bank accounts.
func bankDeclarations() declarations {
	refs := []eventtype.RequiredRef{vendorRefRule()}
	return declarations{
		events: []declaredEvent{
			{schema: contract.EventBankRequested, EventType: module.EventType{
				Registration: eventtype.Registration{
					Type: contract.EventBankRequested, Description: "A bank account of the vendor was requested. The account is sealed under the vendor's id.",
					RequiredEntityRefs: refs, PIIFields: bankFields(), RetentionClass: eventtype.PIISubject,
				},
				Redactable: []string{"$.reason"},
			}},
			{schema: contract.EventBankChanged, EventType: module.EventType{
				Registration: eventtype.Registration{
					Type: contract.EventBankChanged, Description: "The requested account is the vendor's for payments in its currency.", RequiredEntityRefs: refs,
				},
				Redactable: []string{"$.verification"},
			}},
			{schema: contract.EventBankRejected, EventType: module.EventType{
				Registration: eventtype.Registration{Type: contract.EventBankRejected, Description: "The requested account was rejected.", RequiredEntityRefs: refs},
				Redactable:   []string{"$.verification", "$.reason"},
			}},
		},
		intents: []declaredIntent{
			{schema: "request_bank_change", IntentType: module.IntentType{
				Type: contract.IntentRequestBankChange, Description: "Request a bank account for payments to a vendor in a currency.", Emits: []string{contract.EventBankRequested},
				PIIFields: bankFields(), RetentionClass: eventtype.PIISubject, Policy: vendorPolicy, Plan: module.PlanOf(planRequestBankChange),
			}},
			{schema: "approve_bank_change", IntentType: module.IntentType{
				Type: contract.IntentApproveBankChange, Description: "Approve a requested bank account, after the vendor was called back.", Emits: []string{contract.EventBankChanged},
				Opens: []shredding.Class{shredding.Bank}, Policy: vendorPolicy, Plan: module.PlanOf(planApproveBankChange),
			}},
			{schema: "reject_bank_change", IntentType: module.IntentType{
				Type: contract.IntentRejectBankChange, Description: "Reject a requested bank account.", Emits: []string{contract.EventBankRejected},
				Policy: vendorPolicy, Plan: module.PlanOf(planRejectBankChange),
			}},
		},
	}
}

// bankFields declares each member of a bank account as personal data of the subject
// vendor:<vendor id>. They are sealed apart, so that a comparison opens the number alone.
func bankFields() []eventtype.PIIField {
	var fields []eventtype.PIIField
	for _, name := range []string{"iban", "account", "bank", "bic", "holder"} {
		fields = append(fields, eventtype.PIIField{
			Path: "$." + name, Class: string(shredding.Bank), Subject: json.RawMessage(`{"path":"$.vendor_id","type":"vendor"}`),
		})
	}
	return fields
}

func planRequestBankChange(ctx context.Context, in module.Input, s module.State, r contract.BankChangeRequest) (module.Plan, error) {
	vendor, err := loadVendor(ctx, s, r.VendorID)
	if err != nil {
		return module.Plan{}, err
	}
	if vendor.BankRequest != nil {
		return module.Plan{}, domain.BankPendingFault(vendor.BankRequest.RequestID)
	}
	if _, err := money.LookupCurrency(r.Currency, in.Today.Time()); err != nil {
		return module.Plan{}, fault.WithField(err, "/currency")
	}
	r.IBAN, r.Account = domain.NormalAccount(r.IBAN), domain.NormalAccount(r.Account)
	switch {
	case r.IBAN == "" && (r.Account == "" || r.Bank == ""), r.IBAN != "" && (r.Account != "" || r.Bank != ""):
		return module.Plan{}, fault.New(fault.Invalid, "ap.vendor.bank_invalid",
			"an account is given by iban, or by account and bank; send one or the other as on the vendor's paper").WithField("/iban")
	case r.IBAN != "":
		if err := domain.CheckIBAN(r.IBAN); err != nil {
			return module.Plan{}, err
		}
	}
	r.RequestID = vendor.NextRequestID()
	return vendorPlan(in, r.VendorID, contract.EventBankRequested, r), nil
}

// planApproveBankChange plans that the requested account becomes the vendor's. The event names
// the request, whose event keeps the account: one sealed copy is one to erase.
func planApproveBankChange(ctx context.Context, in module.Input, s module.State, d contract.BankDecision) (module.Plan, error) {
	vendor, request, err := findBankRequest(ctx, s, d.RequestID)
	if err != nil {
		return module.Plan{}, err
	}
	if _, err := openAccountNumber(ctx, s, vendor, request); err != nil {
		return module.Plan{}, err
	}
	return bankDecisionPlan(in, vendor, request, contract.EventBankChanged, d), nil
}

func planRejectBankChange(ctx context.Context, in module.Input, s module.State, d contract.BankDecision) (module.Plan, error) {
	vendor, request, err := findBankRequest(ctx, s, d.RequestID)
	if err != nil {
		return module.Plan{}, err
	}
	return bankDecisionPlan(in, vendor, request, contract.EventBankRejected, d), nil
}

func bankDecisionPlan(in module.Input, vendor *domain.Vendor, request *domain.BankAccount, eventType string, d contract.BankDecision) module.Plan {
	d.VendorID, d.Currency = vendor.Master.VendorID, request.Currency
	plan := vendorPlan(in, d.VendorID, eventType, d)
	plan.Events[0].CausedBy, plan.CorrelationID = request.EventID, request.CorrelationID
	f := factsOf(in)
	f.Requester = &request.Requester
	plan.Facts = f
	return plan
}

// findBankRequest finds the open request with an id.
func findBankRequest(ctx context.Context, s module.State, requestID string) (*domain.Vendor, *domain.BankAccount, error) {
	if id := domain.VendorOfRequest(requestID); id != "" {
		vendor, err := module.Load[*domain.Vendor](ctx, s, contract.VendorStream(id))
		if err != nil {
			return nil, nil, err
		}
		if r := vendor.BankRequest; r != nil && r.RequestID == requestID {
			return vendor, r, nil
		}
	}
	return nil, nil, fault.New(fault.NotFound, "ap.vendor.bank_request_not_found",
		"no open request of a bank account has this id; look it up (GET /api/ap/vendors)").WithField("/request_id")
}

// openAccountNumber opens the number of a vendor's account: ap.vendor.bank_missing if it was
// erased. The intent type must open the class bank.
func openAccountNumber(ctx context.Context, s module.State, vendor *domain.Vendor, a *domain.BankAccount) (string, error) {
	opened, err := s.Open(ctx, a.Number())
	if err != nil {
		return "", err
	}
	if len(opened) == 0 || string(opened) == shredding.Redacted {
		return "", domain.BankMissingFault(vendor.Master.VendorID, a.Currency)
	}
	var number string
	return number, json.Unmarshal(opened, &number)
}

// payeeFields declares the accounts on a submitted paper as personal data of the vendor.
func payeeFields() []eventtype.PIIField {
	return []eventtype.PIIField{{
		Path: "$.payee_accounts", Class: string(shredding.Bank), Subject: json.RawMessage(`{"path":"$.vendor_id","type":"vendor"}`),
	}}
}

// comparePayee compares the accounts on a paper with the vendor's approved ones, of any currency,
// and returns the document's payee_bank. Without accounts on the paper it is what the caller
// found. Erased accounts count as none.
func comparePayee(ctx context.Context, s module.State, vendor *domain.Vendor, found string, accounts []string) (string, error) {
	if len(accounts) == 0 {
		return found, nil
	}
	if len(vendor.BankAccounts) == 0 {
		return contract.PayeeBankNone, nil
	}
	var sealed []json.RawMessage
	for _, currency := range slices.Sorted(maps.Keys(vendor.BankAccounts)) {
		a := vendor.BankAccounts[currency]
		if number := a.Number(); len(number) > 0 {
			sealed = append(sealed, number)
		}
	}
	document, err := json.Marshal(sealed)
	if err != nil {
		return "", err
	}
	opened, err := s.Open(ctx, document)
	if err != nil {
		return "", err
	}
	var approved []string
	if err := json.Unmarshal(opened, &approved); err != nil {
		return "", err
	}
	return domain.ComparePayee(accounts, approved), nil
}
