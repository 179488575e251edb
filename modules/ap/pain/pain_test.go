package pain_test

import (
	"encoding/xml"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/erpbackbone/backbone/domain/event"
	"github.com/erpbackbone/backbone/domain/money"
	"github.com/erpbackbone/backbone/modules/ap/pain"
)

func message() *pain.Message {
	return &pain.Message{
		ID: "01JQ0000000000000000000000", Created: time.Date(2025, 3, 20, 12, 0, 0, 999, time.UTC), Initiator: "Demo", Execute: event.MustDate("2025-03-21"),
		Debtor: pain.Account{IBAN: "NL91ABNA0417164300", BIC: "ABNANL2A"},
		Transfers: []pain.Transfer{
			{ID: "P1", Currency: "EUR", MinorUnit: 2, Amount: money.MustNumber("90"), Creditor: pain.Account{Holder: "A & B <Ltd>", IBAN: "DE89370400440532013000", BIC: "COBADEFFXXX"}, Remittance: strings.Repeat("N", 200)},
			{ID: "P2", Currency: "JPY", MinorUnit: 0, Amount: money.MustNumber("700"), Creditor: pain.Account{Holder: "C", Number: "0123", Bank: "021000021"}},
			{ID: "P3", Currency: "EUR", MinorUnit: 2, Amount: money.MustNumber("0.5"), Creditor: pain.Account{Holder: "D", IBAN: "GB29NWBK60161331926819"}},
		},
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	file, err := pain.Write(message())
	require.NoError(t, err)
	again, err := pain.Write(message())
	require.NoError(t, err)
	require.Equal(t, file, again)
	var d struct {
		XMLName xml.Name
		Header  struct {
			ID      string `xml:"MsgId"`
			Created string `xml:"CreDtTm"`
			Count   int    `xml:"NbOfTxs"`
			Sum     string `xml:"CtrlSum"`
		} `xml:"CstmrCdtTrfInitn>GrpHdr"`
		Blocks []struct {
			ID        string `xml:"PmtInfId"`
			Count     int    `xml:"NbOfTxs"`
			Sum       string `xml:"CtrlSum"`
			Transfers []struct {
				ID     string `xml:"PmtId>EndToEndId"`
				Amount struct {
					Currency string `xml:"Ccy,attr"`
					Value    string `xml:",chardata"`
				} `xml:"Amt>InstdAmt"`
				Name       string `xml:"Cdtr>Nm"`
				Remittance string `xml:"RmtInf>Ustrd"`
			} `xml:"CdtTrfTxInf"`
		} `xml:"CstmrCdtTrfInitn>PmtInf"`
	}
	require.NoError(t, xml.Unmarshal(file, &d))
	require.Equal(t, xml.Name{Space: "urn:iso:std:iso:20022:tech:xsd:pain.001.001.09", Local: "Document"}, d.XMLName)
	require.Equal(t, []any{"01JQ0000000000000000000000", "2025-03-20T12:00:00Z", 3, "790.5"}, []any{d.Header.ID, d.Header.Created, d.Header.Count, d.Header.Sum})
	require.Len(t, d.Blocks, 2)
	require.Equal(t, []any{"01JQ0000000000000000000000-1", 2, "90.5"}, []any{d.Blocks[0].ID, d.Blocks[0].Count, d.Blocks[0].Sum})
	require.Equal(t, "A & B <Ltd>", d.Blocks[0].Transfers[0].Name)
	require.Len(t, d.Blocks[0].Transfers[0].Remittance, 140)
	require.Equal(t, []string{"P3", "EUR", "0.50"}, []string{d.Blocks[0].Transfers[1].ID, d.Blocks[0].Transfers[1].Amount.Currency, d.Blocks[0].Transfers[1].Amount.Value})
	require.Equal(t, "700", d.Blocks[1].Transfers[0].Amount.Value)
	require.NotContains(t, string(file), "<RmtInf></RmtInf>")
	// The order of the elements is that of the schema.
	order := []string{"<MsgId>", "<CreDtTm>", "<NbOfTxs>", "<CtrlSum>", "<InitgPty>", "<PmtInfId>", "<PmtMtd>", "<ReqdExctnDt>", "<Dbtr>", "<DbtrAcct>", "<DbtrAgt>", "<CdtTrfTxInf>", "<PmtId>", "<Amt>", "<CdtrAgt>", "<Cdtr>", "<CdtrAcct>", "<RmtInf>"}
	at := 0
	for _, element := range order {
		next := strings.Index(string(file[at:]), element)
		require.GreaterOrEqual(t, next, 0, element)
		at += next
	}
}
