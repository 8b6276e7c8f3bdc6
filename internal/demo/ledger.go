package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// primaryLedger is the ledger that fetch_invoice looks in by default.
const primaryLedger = "main"

// book is one ledger with its invoices by id.
type book struct {
	Ledger   string `json:"ledger"`
	Primary  bool   `json:"primary"`
	Covers   string `json:"covers"`
	Invoices int    `json:"invoices"`

	byID map[string]invoice
}

type invoice struct {
	Invoice  string  `json:"invoice_id"`
	Ledger   string  `json:"ledger"`
	Customer string  `json:"customer"`
	Issued   string  `json:"issued"`
	Amount   float64 `json:"amount"`
	Currency string  `json:"currency"`
	Status   string  `json:"status"`
}

// books returns the fixed data: the primary ledger first.
func books() []book {
	main := []invoice{
		{"INV-2001", primaryLedger, "Weir & Sluice Ltd", "2026-01-12", 1840.00, "EUR", "paid"},
		{"INV-2002", primaryLedger, "Millrace Foods", "2026-02-03", 412.50, "EUR", "open"},
		{"INV-2003", primaryLedger, "Lockkeeper Tools", "2026-02-27", 96.20, "EUR", "open"},
	}
	archive := []invoice{
		{"INV-1001", "archive", "Weir & Sluice Ltd", "2023-05-09", 1200.00, "EUR", "paid"},
		{"INV-1002", "archive", "Culvert Brothers", "2024-11-30", 77.90, "EUR", "written off"},
	}
	return []book{
		shelve(primaryLedger, "invoices INV-2000 and up, issued since 2026", main),
		shelve("archive", "invoices INV-1000 to INV-1999, issued before 2026", archive),
	}
}

func shelve(name, covers string, invoices []invoice) book {
	b := book{Ledger: name, Primary: name == primaryLedger, Covers: covers, Invoices: len(invoices), byID: map[string]invoice{}}
	for _, i := range invoices {
		b.byID[i.Invoice] = i
	}
	return b
}

func ledger() Server {
	all := books()
	return Server{
		ID:    "ledger",
		title: "Ledger (demo)",
		instructions: "Looks up made-up invoices in several ledgers and creates made-up shipments. " +
			"Invoices are looked for in the primary ledger unless another one is named; list_ledgers tells which ledger covers which invoices.",
		tools: []tool{listLedgers(all), fetchInvoice(all), createShipment(new(atomic.Int64)), slowReport()},
	}
}

func listLedgers(all []book) tool {
	const name = "list_ledgers"
	return tool{
		def: mcp.Tool{
			Name:  name,
			Title: "List ledgers",
			Description: "List the ledgers and which invoices each covers. " +
				"Use it when fetch_invoice did not find an invoice, or to learn which ledger is the primary one.",
			Annotations: readOnly(),
			InputSchema: json.RawMessage(`{"type":"object","properties":{},"additionalProperties":false}`),
			OutputSchema: json.RawMessage(`{"type":"object","properties":{"ledgers":{"type":"array","items":{"type":"object","properties":{` +
				`"ledger":{"type":"string"},"primary":{"type":"boolean"},"covers":{"type":"string"},"invoices":{"type":"integer"}},` +
				`"required":["ledger","primary","covers","invoices"]}}},"required":["ledgers"]}`),
		},
		run: func(_ context.Context, _ *mcp.CallToolRequest, args *arguments) (*mcp.CallToolResult, error) {
			if text := args.complain(name); text != "" {
				return refusal(text)
			}
			return answer(map[string][]book{"ledgers": all})
		},
	}
}

func fetchInvoice(all []book) tool {
	const name = "fetch_invoice"
	return tool{
		def: mcp.Tool{
			Name:  name,
			Title: "Fetch an invoice",
			Description: "Fetch one invoice by its id. Use it when the user asks about an invoice. " +
				"Without ledger it looks in the primary ledger only.",
			Annotations: readOnly(),
			InputSchema: json.RawMessage(`{"type":"object","properties":{` +
				`"invoice_id":{"type":"string","minLength":1,"maxLength":200,"description":"For example INV-2001."},` +
				`"ledger":{"type":"string","minLength":1,"maxLength":200,"description":"A ledger from list_ledgers; the primary one if left out."}},` +
				`"required":["invoice_id"],"additionalProperties":false}`),
			OutputSchema: json.RawMessage(`{"type":"object","properties":{` +
				`"invoice_id":{"type":"string"},"ledger":{"type":"string"},"customer":{"type":"string"},"issued":{"type":"string","format":"date"},` +
				`"amount":{"type":"number"},"currency":{"type":"string"},"status":{"type":"string"}},` +
				`"required":["invoice_id","ledger","customer","issued","amount","currency","status"]}`),
		},
		run: func(_ context.Context, _ *mcp.CallToolRequest, args *arguments) (*mcp.CallToolResult, error) {
			id := args.text("invoice_id", "the id of an invoice, as a string such as INV-2001")
			wanted, given := args.optionalText("ledger", "the name of a ledger from list_ledgers, as a string, or be left out")
			if text := args.complain(name); text != "" {
				return refusal(text)
			}
			if !given {
				wanted = primaryLedger
			}
			for _, b := range all {
				if b.Ledger != wanted {
					continue
				}
				if found, ok := b.byID[strings.ToUpper(id)]; ok {
					return answer(found)
				}
				return refusal(noInvoice(id, b))
			}
			return refusal(sentences(
				fmt.Sprintf("There is no ledger %s, so no invoice was looked up.", shorten(wanted)),
				"Call list_ledgers for the names of the ledgers, then fetch_invoice with the one that covers the invoice.",
				"Do not repeat this call unchanged: the answer will be the same."))
		},
	}
}

func noInvoice(id string, b book) string {
	again := "Do not repeat this call unchanged: the answer will be the same."
	if !b.Primary {
		return sentences(
			fmt.Sprintf("The ledger %s has no invoice %s. It covers %s.", b.Ledger, shorten(id), b.Covers),
			"Check the id with the user; if it is right, call list_ledgers, then fetch_invoice with the ledger that covers it.",
			again)
	}
	return sentences(
		fmt.Sprintf("The primary ledger (%s) has no invoice %s. It covers %s; other ledgers exist.", b.Ledger, shorten(id), b.Covers),
		"Call list_ledgers, then call fetch_invoice with the ledger that covers this id.",
		"If none covers it, ask the user to check the id.",
		again)
}

type shipment struct {
	Shipment    string  `json:"shipment_id"`
	Destination string  `json:"destination"`
	WeightKg    float64 `json:"weight_kg"`
	Status      string  `json:"status"`
}

// createShipment numbers shipments; the number is all that is remembered.
func createShipment(count *atomic.Int64) tool {
	const name = "create_shipment"
	return tool{
		def: mcp.Tool{
			Name:  name,
			Title: "Create a shipment",
			Description: "Create a new shipment of one parcel. Use it once the user has confirmed destination and weight. " +
				"Every call creates another shipment, so do not repeat a call whose outcome you do not know.",
			Annotations: adding(false),
			InputSchema: json.RawMessage(`{"type":"object","properties":{` +
				`"destination":{"type":"string","minLength":1,"maxLength":200,"description":"Where the parcel goes."},` +
				`"weight_kg":{"type":"number","minimum":0.1,"maximum":1000,"description":"Weight in kilograms."}},` +
				`"required":["destination","weight_kg"],"additionalProperties":false}`),
			OutputSchema: json.RawMessage(`{"type":"object","properties":{` +
				`"shipment_id":{"type":"string"},"destination":{"type":"string"},"weight_kg":{"type":"number"},"status":{"type":"string","enum":["created"]}},` +
				`"required":["shipment_id","destination","weight_kg","status"]}`),
		},
		run: func(_ context.Context, _ *mcp.CallToolRequest, args *arguments) (*mcp.CallToolResult, error) {
			destination := args.text("destination", "an address or a city, as a string")
			weight := args.number("weight_kg", "a number from 0.1 to 1000", 0.1, 1000)
			if text := args.complain(name); text != "" {
				return refusal(text)
			}
			return answer(shipment{fmt.Sprintf("SHP-%06d", count.Add(1)), destination, weight, "created"})
		},
	}
}

type report struct {
	Seconds  int     `json:"seconds"`
	Invoices int     `json:"invoices"`
	Total    float64 `json:"total"`
	Currency string  `json:"currency"`
}

func slowReport() tool {
	const name = "slow_report"
	return tool{
		def: mcp.Tool{
			Name:  name,
			Title: "Slow report",
			Description: "Add up the invoices of all ledgers, taking the given number of seconds and reporting progress every second. " +
				"Use it to see how long calls, progress and cancellation behave.",
			Annotations: readOnly(),
			InputSchema: json.RawMessage(`{"type":"object","properties":{` +
				`"seconds":{"type":"integer","minimum":1,"maximum":120,"description":"How long to take, in seconds."}},` +
				`"required":["seconds"],"additionalProperties":false}`),
			OutputSchema: json.RawMessage(`{"type":"object","properties":{` +
				`"seconds":{"type":"integer"},"invoices":{"type":"integer"},"total":{"type":"number"},"currency":{"type":"string"}},` +
				`"required":["seconds","invoices","total","currency"]}`),
		},
		run: func(ctx context.Context, call *mcp.CallToolRequest, args *arguments) (*mcp.CallToolResult, error) {
			seconds := args.whole("seconds", "a whole number from 1 to 120", 1, 120)
			if text := args.complain(name); text != "" {
				return refusal(text)
			}
			if err := takeTime(ctx, call, seconds); err != nil {
				return nil, err
			}
			r := report{Seconds: seconds, Currency: "EUR"}
			cents := 0
			for _, b := range books() {
				r.Invoices += b.Invoices
				for _, i := range b.byID {
					cents += int(i.Amount*100 + 0.5)
				}
			}
			r.Total = float64(cents) / 100
			return answer(r)
		},
	}
}

// takeTime lets seconds pass, with progress for a client that asked for it,
// and returns early with the reason when ctx ends.
func takeTime(ctx context.Context, call *mcp.CallToolRequest, seconds int) error {
	token := call.Params.GetProgressToken()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for done := 1; done <= seconds; done++ {
		select {
		case <-ctx.Done():
			return fmt.Errorf("making the report: %w", context.Cause(ctx))
		case <-tick.C:
		}
		if token == nil {
			continue
		}
		err := call.Session.NotifyProgress(ctx, &mcp.ProgressNotificationParams{
			ProgressToken: token,
			Progress:      float64(done),
			Total:         float64(seconds),
			Message:       fmt.Sprintf("%d of %d seconds", done, seconds),
		})
		if err != nil {
			return fmt.Errorf("reporting progress: %w", err)
		}
	}
	return nil
}
