//! dev
use plimsoll_bench::guarded::*;
use plimsoll_bench::*;
#[derive(Debug)]
struct N;
impl Guarded for N {
    fn set_line(&mut self, _l: Line) -> Result<(), BenchError> {
        Ok(())
    }
    fn clear_line(&mut self, _: u32) -> Result<(), BenchError> {
        Ok(())
    }
    fn usage_bytes(&mut self, _: u32) -> Result<Option<u64>, BenchError> {
        Ok(None)
    }
    fn incidents(&mut self) -> Result<Vec<IncidentReading>, BenchError> {
        Ok(vec![])
    }
    fn pid(&self) -> Option<u32> {
        None
    }
}
fn main() {
    let a: Vec<String> = std::env::args().skip(1).collect();
    if a[0] == "bench-workload" {
        std::process::exit(workload_main(&a[1..]))
    }
    let mut o = Options::default();
    o.quick = a.iter().any(|x| x == "--quick");
    o.only = a.iter().find_map(|x| x.strip_prefix("--only=").map(str::to_owned));
    let g = a.iter().find_map(|x| x.strip_prefix("--plimsoll="));
    let t = std::time::Instant::now();
    let r = match g {
        Some(g) => {
            o.plimsoll = g.into();
            run(&a[0], &o)
        }
        None => run_with(&a[0], &o, &|| Ok(Box::new(N) as Box<dyn Guarded>)),
    };
    match r {
        Ok(r) => {
            println!("{r}");
            if let Some(p) = a.iter().find_map(|x| x.strip_prefix("--out=")) {
                std::fs::write(p, serde_json::to_string_pretty(&r).unwrap()).unwrap()
            }
        }
        Err(e) => println!("ERR {e}"),
    }
    eprintln!("{:?}", t.elapsed());
}
