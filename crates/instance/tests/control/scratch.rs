use crate::driving::Case;
#[test]
fn scratch() {
    let case = Case::new("gw", "n=8 fold=off rate=1Mpps control.period=10ms");
    let run = case.with("slo=45us control.batching=optimal").run(900, &[]);
    for (at, (period, worst)) in run.periods.iter().zip(run.worst()).enumerate() {
        let w = &period.snapshot.workers[0];
        eprintln!("{at} worst {worst:.2} busy {:.3} wait {:?} t {:?} {:?}", w.busy_s / period.snapshot.period_s, w.port_wait_s.map(|w| (w.mean*1e6) as i64), period.snapshot.modules.iter().map(|m| m.trigger).take(12).collect::<Vec<_>>(), period.actions.unkept.len());
    }
}
