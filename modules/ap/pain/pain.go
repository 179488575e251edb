// Package pain writes customer credit transfers as ISO 20022 messages of type pain.001.001.09.
// The same transfers always give the same bytes.
package pain

import (
	"bytes"
	"cmp"
	"encoding/xml"
	"slices"
	"strconv"
	"time"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
)

const namespace = "urn:iso:std:iso:20022:tech:xsd:pain.001.001.09"

// Limits of the message, in characters. The schema allows names of 140, and SEPA's rules 70.
const (
	maxName       = 70
	maxRemittance = 140
)

// Message is a file with the transfers of one payment run.
type Message struct {
	ID        string // at most 35 characters
	Created   time.Time
	Initiator string
	Debtor    Account
	Execute   event.Date
	Transfers []Transfer
}

// Account is a bank account with its holder.
type Account struct {
	Holder string
	IBAN   string // or Number
	Number string
	BIC    string
	Bank   string // clearing number of the bank where there is no BIC
}

// Transfer is one payment.
type Transfer struct {
	ID         string // end-to-end id, at most 35 characters
	Currency   string
	MinorUnit  int
	Amount     money.Number
	Creditor   Account
	Remittance string
}

// ControlSum adds up the amounts, whatever their currencies, as the message does.
func (m *Message) ControlSum() money.Number {
	var sum money.Number
	for i := range m.Transfers {
		sum = sum.Add(m.Transfers[i].Amount)
	}
	return sum
}

type document struct {
	XMLName   xml.Name   `xml:"Document"`
	Namespace string     `xml:"xmlns,attr"`
	Header    header     `xml:"CstmrCdtTrfInitn>GrpHdr"`
	Payments  []payments `xml:"CstmrCdtTrfInitn>PmtInf"`
}

type header struct {
	ID        string `xml:"MsgId"`
	Created   string `xml:"CreDtTm"`
	Count     int    `xml:"NbOfTxs"`
	Sum       string `xml:"CtrlSum"`
	Initiator string `xml:"InitgPty>Nm"`
}

type payments struct {
	ID        string     `xml:"PmtInfId"`
	Method    string     `xml:"PmtMtd"`
	Count     int        `xml:"NbOfTxs"`
	Sum       string     `xml:"CtrlSum"`
	Execute   string     `xml:"ReqdExctnDt>Dt"`
	Debtor    string     `xml:"Dbtr>Nm"`
	Account   accountID  `xml:"DbtrAcct>Id"`
	Agent     agent      `xml:"DbtrAgt>FinInstnId"`
	Transfers []transfer `xml:"CdtTrfTxInf"`
}

type accountID struct {
	IBAN  string `xml:"IBAN,omitempty"`
	Other *other `xml:"Othr,omitempty"`
}

type other struct {
	ID string `xml:"Id"`
}

type agent struct {
	BIC    string  `xml:"BICFI,omitempty"`
	Member *member `xml:"ClrSysMmbId,omitempty"`
	Other  *other  `xml:"Othr,omitempty"`
}

type member struct {
	ID string `xml:"MmbId"`
}

type transfer struct {
	ID         string     `xml:"PmtId>EndToEndId"`
	Amount     amount     `xml:"Amt>InstdAmt"`
	Agent      *bankAgent `xml:"CdtrAgt,omitempty"`
	Creditor   string     `xml:"Cdtr>Nm"`
	Account    accountID  `xml:"CdtrAcct>Id"`
	Remittance *ustrd     `xml:"RmtInf,omitempty"`
}

type ustrd struct {
	Text string `xml:"Ustrd"`
}

type bankAgent struct {
	Institution agent `xml:"FinInstnId"`
}

type amount struct {
	Currency string `xml:"Ccy,attr"`
	Value    string `xml:",chardata"`
}

// Write gives the bytes of the message: one block of payments for each currency, in the order of
// the first transfer of each.
func Write(m *Message) ([]byte, error) {
	d := document{Namespace: namespace, Header: header{
		ID: m.ID, Created: m.Created.UTC().Format("2006-01-02T15:04:05Z"), Count: len(m.Transfers), Sum: m.ControlSum().String(), Initiator: clip(m.Initiator, maxName),
	}}
	var currencies []string
	for i := range m.Transfers {
		if c := m.Transfers[i].Currency; !slices.Contains(currencies, c) {
			currencies = append(currencies, c)
		}
	}
	for i, currency := range currencies {
		p := payments{
			ID: m.ID + "-" + strconv.Itoa(i+1), Method: "TRF", Execute: m.Execute.String(), Debtor: clip(cmp.Or(m.Debtor.Holder, m.Initiator), maxName),
			Account: idOf(m.Debtor), Agent: debtorAgent(m.Debtor),
		}
		var sum money.Number
		for j := range m.Transfers {
			t := &m.Transfers[j]
			if t.Currency != currency {
				continue
			}
			sum = sum.Add(t.Amount)
			x := transfer{
				ID: t.ID, Amount: amount{Currency: currency, Value: t.Amount.Fixed(t.MinorUnit)}, Agent: creditorAgent(t.Creditor),
				Creditor: clip(t.Creditor.Holder, maxName), Account: idOf(t.Creditor),
			}
			if t.Remittance != "" {
				x.Remittance = &ustrd{clip(t.Remittance, maxRemittance)}
			}
			p.Transfers = append(p.Transfers, x)
		}
		p.Count, p.Sum = len(p.Transfers), sum.String()
		d.Payments = append(d.Payments, p)
	}
	var out bytes.Buffer
	out.WriteString(xml.Header)
	encoder := xml.NewEncoder(&out)
	encoder.Indent("", " ")
	if err := encoder.Encode(d); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}

func idOf(a Account) accountID {
	if a.IBAN != "" {
		return accountID{IBAN: a.IBAN}
	}
	return accountID{Other: &other{ID: a.Number}}
}

// debtorAgent names the bank of the debtor, which the message requires also where the IBAN alone
// is enough.
func debtorAgent(a Account) agent {
	if a.BIC != "" {
		return agent{BIC: a.BIC}
	}
	return agent{Other: &other{ID: "NOTPROVIDED"}}
}

func creditorAgent(a Account) *bankAgent {
	switch {
	case a.BIC != "":
		return &bankAgent{agent{BIC: a.BIC}}
	case a.Bank != "":
		return &bankAgent{agent{Member: &member{ID: clip(a.Bank, 35)}}}
	default:
		return nil
	}
}

// clip shortens a text to a number of characters.
func clip(text string, limit int) string {
	if runes := []rune(text); len(runes) > limit {
		return string(runes[:limit])
	}
	return text
}
